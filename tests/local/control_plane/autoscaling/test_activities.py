"""Test the scaling activities of groups, which record launches, terminations and failures."""

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from cli.aws.scaling import read_activities
from cli.reports.status_reader import scaling_reasons
from local.data_plane.launch_failures import write_failure
from tests.local.control_plane.harness import Aws, Group, Stacks, start_server
from tests.local.control_plane.templates import cluster, group, launch_template


def activities(aws: Aws, group_name: str) -> list[tuple[str, str]]:
    answer = aws.client("autoscaling").describe_scaling_activities(AutoScalingGroupName=group_name)
    return [(activity["StatusCode"], activity["Description"]) for activity in answer["Activities"]]


def test_launches_and_terminations_are_recorded_newest_first(aws: Aws, stacks: Stacks) -> None:
    stacks.create(cluster(Group=group(1)))
    name = stacks.physical_id("Group")
    answer = aws.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[name])
    first = answer["AutoScalingGroups"][0]["Instances"][0]["InstanceId"]
    assert activities(aws, name) == [("Successful", f"Launching a new EC2 instance: {first}")]
    aws.client("ec2").terminate_instances(InstanceIds=[first])
    launched, terminated, _ = activities(aws, name)
    assert terminated == ("Successful", f"Terminating EC2 instance: {first}")
    assert launched[1].startswith("Launching a new EC2 instance: i-")
    assert first not in launched[1]


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    """Start a control plane inside a local AWS; the test acts as its data plane."""
    monkeypatch.setenv("LOCAL_AWS_DIR", str(tmp_path))
    process, port = start_server()
    yield Aws(url=f"http://localhost:{port}", request_log=tmp_path / "requests")
    process.terminate()
    process.wait(timeout=60)
    assert process.stdout
    process.stdout.close()


def test_status_shows_why_an_instance_did_not_boot(inside: Aws, tmp_path: Path) -> None:
    own = Stacks(aws=inside)
    own.create(cluster(Group=group(1)))
    asg = Group(aws=inside, name=own.physical_id("Group"))
    (first,) = asg.in_service()
    write_failure(tmp_path, first, "its container ended (1): Failed to mount")
    inside.client("ec2").terminate_instances(InstanceIds=[first])
    since = datetime.min.replace(tzinfo=timezone.utc)
    newest, *_ = scaling_reasons(read_activities(inside.client("autoscaling"), [asg.name], since=since))
    assert "Termination Reason: Server.InternalError: Internal error on launch" in newest
    assert newest.endswith("its container ended (1): Failed to mount")
    assert len(asg.in_service()) == 1
    assert first not in asg.in_service()


def test_failed_launch_of_a_group_has_a_reason(aws: Aws, stacks: Stacks) -> None:
    ec2 = aws.client("ec2")
    ec2.create_key_pair(KeyName="lost")
    stacks.create({"Resources": cluster(Group=group(1))["Resources"] | {"Template": launch_template(KeyName="lost")}})
    ec2.delete_key_pair(KeyName="lost")
    asg = Group(aws=aws, name=stacks.physical_id("Group"))
    (first,) = asg.in_service()
    ec2.terminate_instances(InstanceIds=[first])
    answer = aws.client("autoscaling").describe_scaling_activities(AutoScalingGroupName=asg.name)
    failed, *_ = [activity for activity in answer["Activities"] if activity["StatusCode"] == "Failed"]  # it tries again
    assert failed["StatusMessage"] == "The key pair 'lost' does not exist. Launching EC2 instance failed."


def test_update_to_a_template_that_cannot_be_launched_is_refused(aws: Aws, stacks: Stacks) -> None:
    stacks.create(cluster(Group=group(1)))
    asg = Group(aws=aws, name=stacks.physical_id("Group"))
    refused = cluster(Group=group(2))
    refused["Resources"]["Template"] = launch_template(InstanceType="c5.99999xlarge")
    stacks.update(refused)
    assert stacks.status() == "UPDATE_ROLLBACK_COMPLETE"
    (why,) = [reason for status, reason in stacks.events("Group") if status == "UPDATE_FAILED"]
    assert why == (
        "You must use a valid fully-formed launch template. Invalid value 'c5.99999xlarge' for InstanceType."
    )
    assert [status for status, _ in asg.activities()] == ["Successful"]
    assert len(asg.in_service()) == 1
