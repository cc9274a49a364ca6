"""Define a group of nodes of one type: a launch template and an Auto Scaling group. The master's group has one node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from bootstrap import contract
from bootstrap.aws.group_sizes import GroupSize
from bootstrap.config import NodeConfig
from bootstrap.team_keys.keys import TeamKey, to_tags
from stacks.catalog.gpu_types import InstanceType
from stacks.nodes import user_data
from stacks.nodes.network_interfaces import network_interfaces

CREATION_TIMEOUT: Final = cdk.Duration.minutes(30)
"""Time within which CloudFormation must receive ``size.min_size`` nodes' signals, in addition to a setup's time. It is
longer than NODE_READY_TIMEOUT_S, so that a node can report its failure even after a slow boot."""

SPOT_OPTIONS: Final = {
    "MarketType": "spot",
    "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
}
"""Market of spot instances; the group replaces one that EC2 takes back. Without a price, the limit is the on-demand
price."""

BLOCK_OPTIONS: Final = {"MarketType": "capacity-block"}
"""Market of instances in a Capacity Block; without it, EC2 launches none there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeTemplate:
    """Properties of one group's nodes; the master's may differ in type, EFA, placement and reservation."""

    cluster_name: str
    instance_type: str
    image: ec2.IMachineImage
    key_name: str | None
    root_device: str
    root_volume_gib: int
    efa: InstanceType | None = None
    """Catalog entry for the EFA interfaces; None without EFA."""
    placement_group: str | None = None
    """Name of the placement group, if any."""
    volume_key: kms.IKey | None = None
    """Key of the root volume; None for the account's default key for volumes."""
    capacity_reservation: str | None = None
    """Reservation that provides every node, if any."""
    uses_capacity_block: bool = False
    """True if the reservation is a Capacity Block."""
    is_spot: bool = False

    @property
    def market_options(self) -> Mapping[str, object] | None:
        """Return the market of the nodes; None for on-demand, also in a reservation that is not a block."""
        if self.is_spot:
            return SPOT_OPTIONS
        return BLOCK_OPTIONS if self.capacity_reservation is not None and self.uses_capacity_block else None


class NodeGroup(Construct):
    """A group of nodes in one subnet; a deploy succeeds once ``size.min_size`` of them are ready.

    AWS replaces a lost node; a deploy never replaces a running one.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        node_type: contract.NodeType,
        size: GroupSize,
        template: NodeTemplate,
        vpc: ec2.IVpc,
        subnet: ec2.ISubnet,
        security_groups: list[ec2.ISecurityGroup],
        role: iam.IRole,
        setup_timeout: cdk.Duration,
    ) -> None:
        super().__init__(scope, construct_id)
        self.node_type = node_type
        self._user_data = ec2.UserData.custom(user_data.SHEBANG)
        self.launch_template = self._create_launch_template(template, security_groups, role)
        self.asg = autoscaling.AutoScalingGroup(
            self,
            "Group",
            vpc=vpc,
            vpc_subnets=ec2.SubnetSelection(subnets=[subnet]),
            launch_template=self.launch_template,
            min_capacity=size.min_size,
            max_capacity=size.max_size,
            # The group's DesiredCapacity carries the number: bootstrap/cluster/discovery.py reads it on the master.
            desired_capacity=size.desired_capacity,
            # AWS's default policy terminates instances with the oldest launch template first. After a redeploy, these
            # instances are the ones that are training.
            termination_policies=[autoscaling.TerminationPolicy.NEWEST_INSTANCE],
            # The name is explicit because user data and roles contain it before the group exists.
            auto_scaling_group_name=contract.group_name(template.cluster_name, node_type),
            signals=autoscaling.Signals.wait_for_count(size.min_size, timeout=CREATION_TIMEOUT.plus(setup_timeout))
            if size.min_size
            else None,
        )
        self._add_drain_hook()
        # Create the nodes after their route to the internet and delete them before it: a gateway cannot be detached
        # while public addresses use it, and the delete of the stack would fail.
        self.asg.node.add_dependency(subnet.internet_connectivity_established)
        cdk.Annotations.of(self.asg).acknowledge_warning(
            "@aws-cdk/aws-autoscaling:desiredCapacitySet",
            "a deploy sets the size only when the declared one has changed; nothing else scales the group",
        )
        cdk.Validations.of(self.asg).acknowledge(
            cdk.Acknowledgment(
                id="AwsSolutions::AwsSolutions-AS3",
                reason="the agents notice every change of the group by themselves",
            )
        )
        self._tag(template.cluster_name)

    def tag_group(self, key: str, value: str) -> None:
        """Tag the group but no instance: the master reads such a tag, and a deploy changes it while nodes run."""
        kind = autoscaling.CfnAutoScalingGroup.CFN_RESOURCE_TYPE_NAME
        cdk.Tags.of(self.asg).add(key, value, apply_to_launched_instances=False, include_resource_types=[kind])

    def tag_keys(self, keys: Sequence[TeamKey]) -> None:
        """Tag the group with the team's SSH keys, which the master passes to all nodes."""
        for key, value in to_tags(keys).items():
            self.tag_group(key, value)

    def _add_drain_hook(self) -> None:
        """Let a node drain before AWS terminates it; without the node's heartbeats, AWS does not wait."""
        # The L2 hook would be a separate resource, which is created too late for nodes that end during the stack's
        # creation.
        self._resource.lifecycle_hook_specification_list = [
            autoscaling.CfnAutoScalingGroup.LifecycleHookSpecificationProperty(
                lifecycle_hook_name=contract.DRAIN_HOOK,
                lifecycle_transition="autoscaling:EC2_INSTANCE_TERMINATING",
                heartbeat_timeout=contract.DRAIN_HOOK_HEARTBEAT_TIMEOUT_S,
                default_result="CONTINUE",
            )
        ]

    @property
    def _resource(self) -> autoscaling.CfnAutoScalingGroup:
        resource = self.asg.node.default_child
        if not isinstance(resource, autoscaling.CfnAutoScalingGroup):
            raise TypeError(f"default child of an Auto Scaling group must be its resource, got {resource!r}")
        return resource

    @property
    def signal_resource(self) -> str:
        """Return the logical ID to which the nodes signal, as text, because a reference would create a cycle."""
        return cdk.Stack.of(self).get_logical_id(self._resource)

    def set_user_data(self, config: NodeConfig, bundle: user_data.BundleSource) -> None:
        """Add the script to the user data; it names the group, which is created only after the launch template."""
        self._user_data.add_commands(user_data.body(config, bundle))

    def _create_launch_template(
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
            # A container is one hop further away, so it cannot read the node's credentials.
            http_put_response_hop_limit=1,
        )
        for group in security_groups[1:]:
            launch_template.add_security_group(group)
        self._override(launch_template, template, security_groups)
        return launch_template

    def _override(
        self, launch_template: ec2.LaunchTemplate, template: NodeTemplate, security_groups: list[ec2.ISecurityGroup]
    ) -> None:
        """Set properties that the construct for launch templates lacks."""
        resource = _cfn_resource(launch_template)
        if template.efa is not None:
            groups = [group.security_group_id for group in security_groups]
            interfaces = network_interfaces(template.efa, groups)
            resource.add_property_override("LaunchTemplateData.NetworkInterfaces", interfaces)
            # EC2 reads the groups from the interfaces, and refuses them in both places.
            resource.add_property_deletion_override("LaunchTemplateData.SecurityGroupIds")
        if template.placement_group is not None:
            resource.add_property_override("LaunchTemplateData.Placement.GroupName", template.placement_group)
        if template.capacity_reservation is not None:
            # With a target, EC2 launches nowhere else, and refuses a preference beside it.
            target = {"CapacityReservationTarget": {"CapacityReservationId": template.capacity_reservation}}
            resource.add_property_override("LaunchTemplateData.CapacityReservationSpecification", target)
        if template.market_options is not None:
            resource.add_property_override("LaunchTemplateData.InstanceMarketOptions", template.market_options)

    def _tag(self, cluster_name: str) -> None:
        for construct in (self.launch_template, self.asg):
            cdk.Tags.of(construct).add("Name", f"{cluster_name}-{self.node_type}")
        cdk.Tags.of(self.asg).add(contract.CLUSTER_TAG, cluster_name)
        cdk.Tags.of(self.asg).add(contract.NODE_TYPE_TAG, self.node_type)


def _cfn_resource(launch_template: ec2.LaunchTemplate) -> ec2.CfnLaunchTemplate:
    resource = launch_template.node.default_child
    if not isinstance(resource, ec2.CfnLaunchTemplate):
        raise TypeError(f"default child of a launch template must be its resource, got {resource!r}")
    return resource


def _root_volume(template: NodeTemplate) -> ec2.BlockDevice:
    return ec2.BlockDevice(
        device_name=template.root_device,
        volume=ec2.BlockDeviceVolume.ebs(
            template.root_volume_gib,
            volume_type=ec2.EbsDeviceVolumeType.GP3,
            encrypted=True,
            kms_key=template.volume_key,
            delete_on_termination=True,
        ),
    )
