from datetime import datetime, timezone
from typing import Any

import boto3
from botocore.stub import Stubber

from cli.scaling import Activity, distinct_failures, find_groups, read_activities

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
        "Description": "Launching a new EC2 instance.",
        "StartTime": datetime(2026, 1, 1, 0, minute, tzinfo=timezone.utc),
        "StatusCode": "Failed",
        "StatusMessage": NO_CAPACITY,
    }


def test_activities_of_all_groups_and_pages_come_newest_first() -> None:
    autoscaling = client()
    with Stubber(autoscaling) as stub:
        asked = {"AutoScalingGroupName": "workers", "IncludeDeletedGroups": True}
        first = {"Activities": [described(4), described(2)], "NextToken": "more"}
        stub.add_response("describe_scaling_activities", first, asked)
        more = {**asked, "NextToken": "more"}
        stub.add_response("describe_scaling_activities", {"Activities": [described(1)]}, more)
        asked = {**asked, "AutoScalingGroupName": "master"}
        stub.add_response("describe_scaling_activities", {"Activities": [described(3, "master")]}, asked)
        found = read_activities(autoscaling, ["workers", "master"])
        stub.assert_no_pending_responses()
    assert [activity.time.minute for activity in found] == [4, 3, 2, 1]
    assert str(found[0]) == (f"2026-01-01 00:04:00 workers: Launching a new EC2 instance, Failed: {NO_CAPACITY}")


def test_groups_are_found_by_the_clusters_tag_on_every_page() -> None:
    def group(name: str, *instances: str) -> dict[str, Any]:
        return {
            "AutoScalingGroupName": name, "MinSize": 1, "MaxSize": 1, "DesiredCapacity": 1, "DefaultCooldown": 1,
            "AvailabilityZones": [], "HealthCheckType": "EC2", "CreatedTime": "2026-01-01T00:00:00Z",
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
        asked = {"Filters": [{"Name": "tag:deeplearning:cluster", "Values": ["demo"]}]}
        first = {"AutoScalingGroups": [group("m", "i-1")], "NextToken": "more"}
        stub.add_response("describe_auto_scaling_groups", first, asked)
        last = {"AutoScalingGroups": [group("w", "i-2", "i-3")]}
        stub.add_response("describe_auto_scaling_groups", last, {**asked, "NextToken": "more"})
        found = find_groups(autoscaling, "demo")
    assert (found.names, found.instance_ids) == (("m", "w"), ("i-1", "i-2", "i-3"))


def activity(minute: int, status: str, reason: str) -> Activity:
    time = datetime(2026, 1, 1, 0, minute, tzinfo=timezone.utc)
    return Activity(time=time, group="g", description="Launching", status=status, reason=reason)


def test_a_reason_that_comes_again_and_again_is_told_once_with_its_newest_time() -> None:
    newest_first = [
        activity(5, "Successful", ""),
        activity(4, "Failed", "no capacity"),
        activity(3, "Cancelled", "quota"),
        activity(2, "Failed", "no capacity"),
    ]
    assert [(a.time.minute, a.reason) for a in distinct_failures(newest_first, 5)] == [(4, "no capacity"), (3, "quota")]
    assert len(distinct_failures(newest_first, 1)) == 1
