"""Test what is read of the Auto Scaling groups and their activities."""

from datetime import datetime, timezone
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from cli.aws.scaling import NO_GROUPS, Activity, distinct_failures, find_groups, newest_of_groups, read_activities

NO_CAPACITY = "We currently do not have sufficient g6.xlarge capacity."


def client() -> Any:
    return boto3.client("autoscaling", region_name="eu-west-1", aws_access_key_id="x", aws_secret_access_key="x")


def described(
    minute: int, group: str = "workers", status: str = "Failed", message: str = NO_CAPACITY
) -> dict[str, Any]:
    return {
        "ActivityId": f"{group}{minute}",
        "AutoScalingGroupName": group,
        "Cause": "a difference",
        "Description": f"Launching a new EC2 instance.  Status Reason: {NO_CAPACITY}",
        "StartTime": datetime(2026, 1, 1, 0, minute, tzinfo=timezone.utc),
        "StatusCode": "Failed",
        "StatusMessage": NO_CAPACITY,
    }


def test_activities_since_creation_are_newest_first() -> None:
    autoscaling = client()
    with Stubber(autoscaling) as stub:
        query = {"AutoScalingGroupName": "workers", "IncludeDeletedGroups": True}
        first = {"Activities": [described(4), described(2)], "NextToken": "more"}
        stub.add_response("describe_scaling_activities", first, query)
        more = {**query, "NextToken": "more"}
        stub.add_response("describe_scaling_activities", {"Activities": [described(1), described(0)]}, more)
        query = {**query, "AutoScalingGroupName": "master"}
        stub.add_response("describe_scaling_activities", {"Activities": [described(3, "master")]}, query)
        found = read_activities(autoscaling, ["workers", "master"], since=described(1)["StartTime"])
        stub.assert_no_pending_responses()
    assert [activity.time.minute for activity in found] == [4, 3, 2, 1]
    assert str(found[0]) == (f"2026-01-01 00:04:00 workers: Launching a new EC2 instance, Failed: {NO_CAPACITY}")


def test_groups_are_found_by_the_clusters_tag_on_every_page() -> None:
    def group(name: str, *instances: str) -> dict[str, Any]:
        return {
            "AutoScalingGroupName": name, "MinSize": 1, "MaxSize": 9, "DesiredCapacity": 2, "DefaultCooldown": 1,
            "AvailabilityZones": [], "HealthCheckType": "EC2", "CreatedTime": datetime(2026, 1, 1, tzinfo=timezone.utc),
            "Instances": [
                {
                    "InstanceId": instance, "AvailabilityZone": "a", "LifecycleState": "InService",
                    "HealthStatus": "Healthy", "ProtectedFromScaleIn": False,
                }
                for instance in instances
            ],
        }  # fmt: skip

    autoscaling = client()
    with Stubber(autoscaling) as stub:
        query = {"Filters": [{"Name": "tag:deeplearning:cluster", "Values": ["demo"]}]}
        first = {"AutoScalingGroups": [group("m", "i-1")], "NextToken": "more"}
        stub.add_response("describe_auto_scaling_groups", first, query)
        last = {"AutoScalingGroups": [group("w", "i-2", "i-3")]}
        stub.add_response("describe_auto_scaling_groups", last, {**query, "NextToken": "more"})
        found = find_groups(autoscaling, "demo")
    assert (found.names, found.instance_ids) == (("m", "w"), ("i-1", "i-2", "i-3"))
    assert found.desired_nodes(default=7) == 4
    assert found.since == datetime(2026, 1, 1, tzinfo=timezone.utc)
    assert NO_GROUPS.desired_nodes(default=7) == 7


def activity(minute: int, status: str, reason: str, group: str = "workers") -> Activity:
    time = datetime(2026, 1, 1, 0, minute, tzinfo=timezone.utc)
    return Activity(time=time, group=group, description="Launching", status=status, reason=reason)


def test_repeated_failures_are_merged_with_newest_time_and_count() -> None:
    newest_first = [
        activity(6, "Successful", ""),
        activity(5, "Failed", "no capacity"),
        activity(4, "Failed", "no capacity", "master"),
        activity(3, "Cancelled", "quota"),
        activity(2, "Failed", "no capacity"),
    ]
    assert list(map(str, distinct_failures(newest_first))) == [
        "2026-01-01 00:05:00 workers: Launching, Failed: no capacity (2 times)",
        "2026-01-01 00:04:00 master: Launching, Failed: no capacity",
        "2026-01-01 00:03:00 workers: Launching, Cancelled: quota",
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Instance i-0123456789abcdef0 became unhealthy.", "Instance i-0fedcba9876543210 became unhealthy."),
        (
            "Access denied (Request ID: 6f6a2a50-3e5c-4f0e-9d3b-0a1b2c3d4e5f)",
            "Access denied (Request ID: 00000000-3e5c-4f0e-9d3b-0a1b2c3d4e5f)",
        ),
        (
            "You are not authorized. Encoded authorization failure message: kZ-a_9 Launching EC2 instance failed.",
            "You are not authorized. Encoded authorization failure message: Qq81bb Launching EC2 instance failed.",
        ),
    ],
)
def test_reasons_are_equal_apart_from_the_ids_in_them(first: str, second: str) -> None:
    (found,) = distinct_failures([activity(2, "Failed", first), activity(1, "Failed", second)])
    assert (found.newest.reason, found.count) == (first, 2)


def test_newest_activity_per_group() -> None:
    newest_first = [activity(3, "Successful", ""), activity(2, "Failed", "", "master"), activity(1, "Failed", "")]
    assert newest_of_groups(newest_first) == newest_first[:2]
