"""Let a cluster expire during an update, after it, and after a deletion that failed.

It takes about twenty minutes, most of which passes in waiting for schedules: `make soak` runs it.
"""

import os
from datetime import timedelta
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from bootstrap.contract import CLUSTER_TAG, NODE_TYPES, group_name
from local.faults.clients import client
from local.run.user import User
from stacks.settings.parsing import format_utc
from tests.e2e.support.checkouts import Edit
from tests.e2e.support.durable_training import now
from tests.e2e.support.group_states import PAUSED, group_sizes, instance_states, members
from tests.e2e.support.guest_stack import (
    APP,
    AWAITED,
    LEAVES_LATE,
    guest_instance,
    release_guest,
    results_bucket,
    signal_guest,
    stack_status,
    write_stack,
)
from tests.e2e.support.laptop import COMMAND_S, Laptop, new_laptop
from tests.waiting import wait_until

CLUSTER = "updated"
NODES = 2
DEPLOY = timedelta(minutes=5)
"""Time from the second deploy to the end that it sets."""
END_S = 180.0
CLEANUP = "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS"
"""Status of an update that still deletes what the new template lacks."""
PROGRESS = "UPDATE_IN_PROGRESS"
EDITS = (
    # The deletion begins a minute after the pause, and both come every minute.
    Edit(file="stacks/settings/lifetime.py", old="timedelta(minutes=15)", new="timedelta(minutes=1)"),
    Edit(file="stacks/lifetime/eventbridge_schedules.py", old='"rate(5 minutes)"', new='"rate(1 minute)"'),
    APP,
)


def control_plane_log() -> str:
    return Path(os.environ["LOCAL_AWS_DIR"], "log/local.control_plane.log").read_text(errors="replace")


@pytest.fixture
def laptop(user: User, tmp_path: Path) -> Laptop:
    made = new_laptop(user, tmp_path, {"cluster_name": CLUSTER, "worker_count": NODES - 1})
    for edit in EDITS:
        edit.make(made.checkout)
    return made


def launches(group: str) -> set[str]:
    """Return the IDs of all instances that a group has ever launched."""
    activities = client("autoscaling").describe_scaling_activities(AutoScalingGroupName=group)["Activities"]
    return {
        activity["Description"].split()[-1]
        for activity in activities
        if activity["Description"].startswith("Launching")
    }


@pytest.mark.timeout(1500)
def test_end_comes_during_an_update_and_again_after_it(laptop: Laptop) -> None:
    # The update starts workers when it goes on, and the next call of the schedules ends them.
    write_stack(laptop)
    laptop.run("cdk", "deploy")
    nodes = members(CLUSTER)
    assert len(nodes) == NODES
    groups = [group_name(CLUSTER, kind) for kind in NODE_TYPES]
    before = [launches(group) for group in groups]
    write_stack(laptop, guest=AWAITED)
    expires = (now() + DEPLOY).replace(microsecond=0)
    update = laptop.start("cdk", "deploy", "-c", f"worker_count={NODES}", "-c", f"expires={format_utc(expires)}")
    wait_until(lambda: stack_status(CLUSTER) == PROGRESS, "the update", timeout_s=DEPLOY.total_seconds())
    assert now() < expires, "the update began after the end"

    wait_s = (expires - now()).total_seconds() + END_S
    wait_until(lambda: group_sizes(CLUSTER) == PAUSED, "the pause", timeout_s=wait_s)
    assert now() >= expires
    wait_until(lambda: instance_states(nodes) == {"terminated"}, "the nodes' end", timeout_s=END_S)
    with pytest.raises(ClientError, match=f"cannot be deleted while in status {PROGRESS}"):
        client("cloudformation").delete_stack(StackName=CLUSTER)
    refusal = f"stack {CLUSTER} is {PROGRESS}: wait until CloudFormation has finished, try again"
    assert refusal in laptop.output_of_failure("dlcluster", "--cluster", CLUSTER, "pause", "--yes")
    assert [launches(group) for group in groups] == before

    signal_guest(CLUSTER)
    output, _ = update.communicate(timeout=COMMAND_S)
    assert update.returncode == 0, output
    started = [launches(group) - earlier for group, earlier in zip(groups, before, strict=True)]
    assert [*map(len, started)] == [0, NODES]
    wait_until(lambda: instance_states(started[1]) == {"terminated"}, "the workers' end", timeout_s=END_S)
    assert group_sizes(CLUSTER) == PAUSED
    laptop.run("cdk", "destroy", "--force")
    assert not stack_status(CLUSTER)


@pytest.mark.timeout(1500)
def test_end_comes_during_a_cleanup_and_after_a_deletion_that_failed(laptop: Laptop) -> None:
    write_stack(laptop, guest=LEAVES_LATE)
    laptop.run("cdk", "deploy")
    nodes, guest = members(CLUSTER), guest_instance(CLUSTER)["InstanceId"]
    assert len(nodes) == NODES
    client("s3").put_object(Bucket=results_bucket(CLUSTER), Key="result", Body=b"numbers")
    write_stack(laptop)
    expires = (now() + DEPLOY).replace(microsecond=0)
    update = laptop.start("cdk", "deploy", "-c", f"expires={format_utc(expires)}", "-c", "expiry_action=delete")
    wait_until(lambda: stack_status(CLUSTER) == CLEANUP, "the update", timeout_s=DEPLOY.total_seconds())
    assert now() < expires, "the update began after the end"

    wait_s = (expires - now()).total_seconds() + END_S
    wait_until(lambda: group_sizes(CLUSTER) == PAUSED, "the pause", timeout_s=wait_s)
    assert now() >= expires
    wait_until(lambda: instance_states(nodes) == {"terminated"}, "the nodes' end", timeout_s=END_S)
    refusal = f"cannot be deleted while in status {CLEANUP}"
    wait_until(lambda: refusal in control_plane_log(), "the refusal of the deletion", timeout_s=END_S)
    assert stack_status(CLUSTER) == CLEANUP
    release_guest(CLUSTER, guest)
    output, _ = update.communicate(timeout=COMMAND_S)
    assert update.returncode == 0, output

    wait_until(lambda: stack_status(CLUSTER) == "DELETE_FAILED", "the deletion that fails", timeout_s=END_S)
    master = group_name(CLUSTER, NODE_TYPES[0])
    client("autoscaling").update_auto_scaling_group(AutoScalingGroupName=master, MinSize=1, MaxSize=1)
    wait_until(lambda: group_sizes(CLUSTER) == PAUSED, "the next pause", timeout_s=END_S)
    client("s3").delete_object(Bucket=results_bucket(CLUSTER), Key="result")
    wait_until(lambda: not stack_status(CLUSTER), "the next deletion", timeout_s=END_S)
    names = [group_name(CLUSTER, kind) for kind in NODE_TYPES]
    assert client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=names)["AutoScalingGroups"] == []
    assert instance_states(nodes | {guest}) == {"terminated"}
    filters = [{"Name": f"tag:{CLUSTER_TAG}", "Values": [CLUSTER]}]
    reservations = client("ec2").describe_instances(Filters=filters)["Reservations"]
    assert {instance["State"]["Name"] for reservation in reservations for instance in reservation["Instances"]} == {
        "terminated"
    }
