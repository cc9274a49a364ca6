"""The end of a cluster comes during an update, which succeeds, and after a deletion that failed.

It takes about ten minutes, most of which passes in waiting for schedules: `make soak` runs it.
"""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from bootstrap.contract import CLUSTER_TAG, NODE_TYPES, group_name
from local.faults.clients import client
from local.run.user import User
from stacks.settings.lifetime import iso
from tests.e2e.checkouts import Edit
from tests.e2e.conftest import group_instances
from tests.e2e.durable_training import now
from tests.e2e.group_states import members, sizes, states
from tests.e2e.laptop import COMMAND_S, Laptop, new_laptop
from tests.waiting import await_true

CLUSTER = "updated"
NODES = 2
DEPLOY = timedelta(minutes=5)
"""Time from the second deploy to the end that it sets."""
END_S = 180.0
PAUSED = (0, 0, 0)
CLEANUP = "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS"
"""Status of an update that still deletes what the new template lacks; the local AWS does the rest at once."""
GUEST, RESULTS, HOOK = "guest", "results-of-the-updated-cluster", "says-goodbye"
EDITS = (
    # The deletion begins a minute after the pause, and both come every minute.
    Edit(file="stacks/settings/lifetime.py", old="timedelta(minutes=15)", new="timedelta(minutes=1)"),
    Edit(file="stacks/schedules.py", old='"rate(5 minutes)"', new='"rate(1 minute)"'),
    Edit(
        file="app.py",
        old="        stack = ClusterStack(app",
        new="        import ours\n\n        stack = ours.Stack(app",
    ),
)
OURS = f"""\
from aws_cdk import RemovalPolicy
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_s3 as s3

from stacks.stack import ClusterStack

HOOK = autoscaling.CfnAutoScalingGroup.LifecycleHookSpecificationProperty(
    lifecycle_hook_name="{HOOK}",
    lifecycle_transition="autoscaling:EC2_INSTANCE_TERMINATING",
    heartbeat_timeout=3600,
)


class Stack(ClusterStack):
    def __init__(self, *words, **options):
        super().__init__(*words, **options)
        results = s3.Bucket(self, "Results", bucket_name="{RESULTS}", removal_policy=RemovalPolicy.DESTROY)
        results.node.add_dependency(self.cluster.master.group, self.cluster.workers.group)
        if IMAGE:
            self._add_guest()

    def _add_guest(self):
        data = {{"imageId": IMAGE, "instanceType": "c5.large"}}
        template = ec2.CfnLaunchTemplate(self, "GuestTemplate", launch_template_data=data)
        autoscaling.CfnAutoScalingGroup(
            self,
            "Guest",
            auto_scaling_group_name="{GUEST}",
            min_size="1",
            max_size="1",
            launch_template=autoscaling.CfnAutoScalingGroup.LaunchTemplateSpecificationProperty(
                launch_template_id=template.ref, version=template.attr_latest_version_number
            ),
            lifecycle_hook_specification_list=[HOOK],
            vpc_zone_identifier=[self.cluster.network.private_subnet.subnet_id],
        )
"""
"""A stack of the user's own: the cluster, a bucket that is deleted before its nodes, and one more machine if IMAGE is
set, whose end waits for a hook and delays the update that removes it."""


def write_stack(laptop: Laptop, *, image: str) -> None:
    (laptop.checkout / "ours.py").write_text(f"{OURS}IMAGE = {image!r}\n")


def stack_status() -> str:
    """Return the status of the cluster's stack; empty if there is none."""
    stacks = client("cloudformation").describe_stacks()["Stacks"]
    return next((str(stack["StackStatus"]) for stack in stacks if stack["StackName"] == CLUSTER), "")


def control_plane_log() -> str:
    return Path(os.environ["LOCAL_AWS_DIR"], "log/local.aws.log").read_text(errors="replace")


@pytest.fixture
def laptop(user: User, tmp_path: Path) -> Laptop:
    made = new_laptop(user, tmp_path, {"cluster_name": CLUSTER, "worker_count": NODES - 1})
    for edit in EDITS:
        edit.make(made.checkout)
    write_stack(made, image=client("ec2").describe_images()["Images"][0]["ImageId"])
    made.run("cdk", "deploy")
    return made


@pytest.mark.timeout(1500)
def test_the_end_comes_during_an_update_and_after_a_deletion_that_failed(laptop: Laptop) -> None:
    nodes = members(CLUSTER)
    assert len(nodes) == NODES
    [guest] = group_instances(GUEST)
    client("s3").put_object(Bucket=RESULTS, Key="result", Body=b"numbers")
    write_stack(laptop, image="")
    expires = (now() + DEPLOY).replace(microsecond=0)
    update = laptop.start("cdk", "deploy", "-c", f"expires={iso(expires)}", "-c", "expiry_action=delete")
    await_true(lambda: stack_status() == CLEANUP, "the update", timeout_s=DEPLOY.total_seconds())
    assert now() < expires, "the update began after the end"

    wait_s = (expires - now()).total_seconds() + END_S
    await_true(lambda: sizes(CLUSTER) == [PAUSED, PAUSED], "the pause", timeout_s=wait_s)
    assert now() >= expires
    await_true(lambda: states(nodes) == {"terminated"}, "the nodes' end", timeout_s=END_S)
    refusal = f"cannot be deleted while in status {CLEANUP}"
    await_true(lambda: refusal in control_plane_log(), "the refusal of the deletion", timeout_s=END_S)
    assert stack_status() == CLEANUP
    client("autoscaling").complete_lifecycle_action(
        AutoScalingGroupName=GUEST,
        LifecycleHookName=HOOK,
        InstanceId=guest["InstanceId"],
        LifecycleActionResult="CONTINUE",
    )
    output, _ = update.communicate(timeout=COMMAND_S)
    assert update.returncode == 0, output

    await_true(lambda: stack_status() == "DELETE_FAILED", "the deletion that fails", timeout_s=END_S)
    master = group_name(CLUSTER, NODE_TYPES[0])
    client("autoscaling").update_auto_scaling_group(AutoScalingGroupName=master, MinSize=1, MaxSize=1)
    await_true(lambda: sizes(CLUSTER) == [PAUSED, PAUSED], "the next pause", timeout_s=END_S)
    client("s3").delete_object(Bucket=RESULTS, Key="result")
    await_true(lambda: not stack_status(), "the next deletion", timeout_s=END_S)
    names = [group_name(CLUSTER, kind) for kind in NODE_TYPES]
    assert client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=names)["AutoScalingGroups"] == []
    assert states(nodes | {guest["InstanceId"]}) == {"terminated"}
    filters = [{"Name": f"tag:{CLUSTER_TAG}", "Values": [CLUSTER]}]
    found = client("ec2").describe_instances(Filters=filters)["Reservations"]
    assert {each["State"]["Name"] for reservation in found for each in reservation["Instances"]} == {"terminated"}
