"""A group of equal nodes: a launch template and an Auto Scaling group. The master is a group of one."""

from dataclasses import dataclass
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from bootstrap import contract
from stacks import user_data

CREATION_TIMEOUT: Final = cdk.Duration.minutes(30)
"""How long CloudFormation waits for every node's signal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeTemplate:
    """What the nodes of both groups have in common."""

    cluster_name: str
    instance_type: str
    image: ec2.IMachineImage
    key_name: str | None
    root_device: str
    root_volume_gib: int


class NodeGroup(Construct):
    """``count`` nodes in one subnet; AWS replaces a lost one, a deploy replaces none."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        node_type: contract.NodeType,
        count: int,
        template: NodeTemplate,
        vpc: ec2.IVpc,
        subnet: ec2.ISubnet,
        security_groups: list[ec2.ISecurityGroup],
        role: iam.IRole,
    ) -> None:
        super().__init__(scope, construct_id)
        self.node_type = node_type
        self._user_data = ec2.UserData.custom(user_data.SHEBANG)
        self.launch_template = self._launch_template(template, security_groups, role)
        self.group = autoscaling.AutoScalingGroup(
            self,
            "Group",
            vpc=vpc,
            vpc_subnets=ec2.SubnetSelection(subnets=[subnet]),
            launch_template=self.launch_template,
            min_capacity=count,
            max_capacity=count,
            desired_capacity=count,
            signals=autoscaling.Signals.wait_for_count(count, timeout=CREATION_TIMEOUT) if count else None,
            # AWS's default ends the nodes of the oldest launch template first: after a redeploy, those that train.
            termination_policies=[autoscaling.TerminationPolicy.NEWEST_INSTANCE],
        )
        # The nodes come after their way to the internet and go before it: a gateway that public
        # addresses still use cannot be detached, and the delete of the stack would fail.
        self.group.node.add_dependency(subnet.internet_connectivity_established)
        cdk.Annotations.of(self.group).acknowledge_warning(
            "@aws-cdk/aws-autoscaling:desiredCapacitySet",
            "a deploy sets the size that the user declared; nothing else scales the group",
        )
        cdk.Validations.of(self.group).acknowledge(
            cdk.Acknowledgment(
                id="AwsSolutions::AwsSolutions-AS3",
                reason="the agents notice every change of the group by themselves",
            )
        )
        self._tag(template.cluster_name)

    @property
    def signal_resource(self) -> str:
        """Logical id that the nodes signal to: the id itself, as a reference would be a cycle."""
        resource = self.group.node.default_child
        if not isinstance(resource, cdk.CfnElement):
            raise TypeError(f"an Auto Scaling group without its resource: {resource!r}")
        return cdk.Stack.of(self).get_logical_id(resource)

    def start_with(self, settings: user_data.NodeSettings, bundle: user_data.BundleSource) -> None:
        """Complete the user data, which names the group that the launch template comes before."""
        self._user_data.add_commands(user_data.body(settings, bundle))

    def _launch_template(
        self, template: NodeTemplate, security_groups: list[ec2.ISecurityGroup], role: iam.IRole
    ) -> ec2.LaunchTemplate:
        key = template.key_name
        launch_template = ec2.LaunchTemplate(
            self,
            "LaunchTemplate",
            instance_type=ec2.InstanceType(template.instance_type),
            machine_image=template.image,
            user_data=self._user_data,
            role=role,
            security_group=security_groups[0],
            key_pair=ec2.KeyPair.from_key_pair_name(self, "KeyPair", key) if key else None,
            block_devices=[_root_volume(template)],
            require_imdsv2=True,
            # A container is one hop further: it gets no credentials of the node.
            http_put_response_hop_limit=1,
        )
        for group in security_groups[1:]:
            launch_template.add_security_group(group)
        return launch_template

    def _tag(self, cluster_name: str) -> None:
        for part in (self.launch_template, self.group):
            cdk.Tags.of(part).add("Name", f"{cluster_name}-{self.node_type}")
        cdk.Tags.of(self.group).add(contract.CLUSTER_TAG, cluster_name)
        cdk.Tags.of(self.group).add(contract.NODE_TYPE_TAG, self.node_type)


def _root_volume(template: NodeTemplate) -> ec2.BlockDevice:
    return ec2.BlockDevice(
        device_name=template.root_device,
        volume=ec2.BlockDeviceVolume.ebs(
            template.root_volume_gib,
            volume_type=ec2.EbsDeviceVolumeType.GP3,
            encrypted=True,
            delete_on_termination=True,
        ),
    )
