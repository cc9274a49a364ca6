"""Write a stack of the user's own: the cluster, a bucket, and a guest, a machine that delays the stack's updates."""

from typing import Any, Final, Literal

from local.faults.clients import client
from tests.e2e.support.checkouts import Edit
from tests.e2e.support.deployed_cluster import group_instances
from tests.e2e.support.laptop import Laptop

AWAITED: Final = "awaited"
"""The update that adds the guest waits for its signal, and then changes the workers' group."""
LEAVES_LATE: Final = "leaves late"
"""The update that removes the guest waits for a hook."""
HOOK: Final = "says-goodbye"
APP = Edit(
    file="app.py",
    old="        stack = ClusterStack(app",
    new="        import ours\n\n        stack = ours.Stack(app",
)
"""Edit with which the app deploys this stack."""
_SOURCE: Final = f"""\
import aws_cdk as cdk
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
        name = f"results-of-{{self.stack_name}}"
        results = s3.Bucket(self, "Results", bucket_name=name, removal_policy=cdk.RemovalPolicy.DESTROY)
        results.node.add_dependency(self.cluster.master.asg, self.cluster.workers.asg)
        if GUEST:
            self._add_guest()

    def _add_guest(self):
        data = {{"imageId": IMAGE, "instanceType": "c5.large"}}
        template = ec2.CfnLaunchTemplate(self, "GuestTemplate", launch_template_data=data)
        guest = autoscaling.CfnAutoScalingGroup(
            self,
            "Guest",
            auto_scaling_group_name=f"{{self.stack_name}}-guest",
            min_size="1",
            max_size="1",
            launch_template=autoscaling.CfnAutoScalingGroup.LaunchTemplateSpecificationProperty(
                launch_template_id=template.ref, version=template.attr_latest_version_number
            ),
            vpc_zone_identifier=[self.cluster.network.private_subnet.subnet_id],
        )
        if GUEST == "{LEAVES_LATE}":
            guest.lifecycle_hook_specification_list = [HOOK]
        else:
            signal = cdk.CfnResourceSignal(count=1, timeout="PT1H")
            guest.cfn_options.creation_policy = cdk.CfnCreationPolicy(resource_signal=signal)
            self.cluster.workers.asg.node.add_dependency(guest)
"""
"""Module of the stack, which deletes the bucket before the nodes."""


def write_stack(laptop: Laptop, *, guest: Literal["", "awaited", "leaves late"] = "") -> None:
    """Write the stack's file into the checkout, with this kind of guest or none."""
    image = client("ec2").describe_images()["Images"][0]["ImageId"]
    (laptop.checkout / "ours.py").write_text(f"{_SOURCE}\n\nIMAGE, GUEST = {image!r}, {guest!r}\n")


def results_bucket(cluster: str) -> str:
    """Return the name of the stack's bucket."""
    return f"results-of-{cluster}"


def guest_instance(cluster: str) -> dict[str, Any]:
    """Return the guest's instance."""
    [instance] = group_instances(f"{cluster}-guest")
    return instance


def signal_guest(cluster: str) -> None:
    """Let an update that waits for the guest go on."""
    client("cloudformation").signal_resource(
        StackName=cluster, LogicalResourceId="Guest", UniqueId=guest_instance(cluster)["InstanceId"], Status="SUCCESS"
    )


def release_guest(cluster: str, instance_id: str) -> None:
    """Let an update that removes the guest go on."""
    client("autoscaling").complete_lifecycle_action(
        AutoScalingGroupName=f"{cluster}-guest",
        LifecycleHookName=HOOK,
        InstanceId=instance_id,
        LifecycleActionResult="CONTINUE",
    )


def stack_status(name: str) -> str:
    """Return the status of a stack; empty if there is none."""
    stacks = client("cloudformation").describe_stacks()["Stacks"]
    return next((str(stack["StackStatus"]) for stack in stacks if stack["StackName"] == name), "")
