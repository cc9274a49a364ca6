"""The cluster: a construct that any stack can hold, and the one stack that app.py deploys."""

from typing import Any, Final

import aws_cdk as cdk
from constructs import Construct

from bootstrap import contract
from bootstrap.config import NodeConfig
from stacks.address import MasterAddress
from stacks.bundle_asset import BundleAsset
from stacks.image import LOGIN_USER, machine_image
from stacks.immutable_setting import FixedSetting
from stacks.instances import ROOT_DEVICE
from stacks.logs import ClusterLogs
from stacks.network import Network, default_zone
from stacks.node_group import NodeGroup, NodeTemplate
from stacks.permissions import NodeResources, NodeRoles
from stacks.props import ClusterProps
from stacks.security import SecurityGroups
from stacks.storage import ClusterTable, cluster_bucket

BOOTSTRAP_TIMEOUT_S: Final = 1200
"""How long an agent waits for its cluster; with the boot and the fetch before it, this ends
well before CREATION_TIMEOUT, so that the node says what it waited for."""


class DeepLearningCluster(Construct):
    """A master and its workers in a network of their own."""

    def __init__(self, scope: Construct, construct_id: str, *, props: ClusterProps) -> None:
        super().__init__(scope, construct_id)
        self.props = props
        self.zone = props.availability_zone or default_zone(self)
        self.network = Network(
            self,
            "Network",
            cluster_name=props.cluster_name,
            cidr=props.vpc_cidr,
            availability_zone=_in_template(self.zone),
        )
        self.security = SecurityGroups(
            self,
            "Security",
            cluster_name=props.cluster_name,
            vpc=self.network.vpc,
            ssh_location=props.ssh_location,
        )
        self.table = ClusterTable(self, "Storage").table
        self.bucket = cluster_bucket(self, cluster_name=props.cluster_name, adopted=props.bucket)
        self.log_group = ClusterLogs(self, "Logs").log_group
        self.address = MasterAddress(
            self, "MasterAddress", cluster_name=props.cluster_name, subnet=self.network.public_subnet
        )
        self.bundle = BundleAsset.publish(cdk.Stack.of(self))
        self.roles = NodeRoles(
            self,
            "Roles",
            cluster_name=props.cluster_name,
            resources=NodeResources(
                table=self.table.table_arn,
                log_group=self.log_group.log_group_arn,
                bucket=self.bucket.bucket_arn,
                bundle=self.bundle.arn,
                address=self.address.arn,
            ),
        )
        self.master, self.workers = self._node_groups()
        for group in (self.master, self.workers):
            group.start_with(self._node_config(group), self.bundle.source)
        self._fix_the_network()
        self._fix_the_bucket()
        for warning_id, sentence in props.warnings().items():
            cdk.Annotations.of(self).add_warning_v2(f"deeplearning:{warning_id}", sentence)

    def _fix_the_network(self) -> None:
        FixedSetting(self, "VpcCidr", name="vpc_cidr", value=self.props.vpc_cidr)
        FixedSetting(self, "AvailabilityZone", name="availability_zone", value=self.zone or "the region's first")

    def _fix_the_bucket(self) -> None:
        FixedSetting(
            self,
            "Bucket",
            name="bucket",
            value=self.props.bucket or "one of its own",
            why="running nodes would lose their rights to the old one",
        )

    def _node_groups(self) -> tuple[NodeGroup, NodeGroup]:
        template = NodeTemplate(
            cluster_name=self.props.cluster_name,
            instance_type=self.props.instance_type,
            image=machine_image(self, self.props),
            key_name=self.props.key_name,
            root_device=ROOT_DEVICE,
            root_volume_gib=self.props.root_volume_gib,
        )
        master = NodeGroup(
            self,
            "Master",
            node_type=contract.MASTER,
            desired_nodes=1,
            min_nodes=1,
            template=template,
            vpc=self.network.vpc,
            subnet=self.network.public_subnet,
            security_groups=[self.security.master, self.security.admin_ssh],
            role=self.roles.master,
        )
        workers = NodeGroup(
            self,
            "Workers",
            node_type=contract.WORKER,
            desired_nodes=self.props.worker_count,
            min_nodes=self.props.needed_workers,
            template=template,
            vpc=self.network.vpc,
            subnet=self.network.private_subnet,
            security_groups=[self.security.worker],
            role=self.roles.worker,
        )
        return master, workers

    def _node_config(self, group: NodeGroup) -> NodeConfig:
        stack, props = cdk.Stack.of(self), self.props
        is_master = group.node_type == contract.MASTER
        return NodeConfig(
            cluster_name=props.cluster_name,
            region=stack.region,
            node_type=group.node_type,
            group=contract.group_name(props.cluster_name, group.node_type),
            stack_id=stack.stack_id,
            signal_resource=group.signal_resource,
            fails_deploy=is_master or props.min_workers is None,
            min_nodes=None if props.min_workers is None else 1 + props.min_workers,
            gpu_count=props.gpus,
            # So that on destroy the master goes before its address.
            address=self.address.address if is_master else None,
            address_allocation=self.address.allocation_id if is_master else None,
            table=self.table.table_name,
            networks=props.vpc_cidr,
            log_group=self.log_group.log_group_name,
            bucket=self.bucket.bucket_name,
            master_role_id=self.roles.master.role_id,
            worker_role_id=self.roles.worker.role_id,
            engines=props.engines[-1] if props.engines else None,
            default_user=LOGIN_USER,
            bootstrap_timeout_s=BOOTSTRAP_TIMEOUT_S,
        )


class ClusterStack(cdk.Stack):
    """The one stack of the product, named as the cluster; its outputs are what login needs."""

    def __init__(self, scope: Construct, construct_id: str, *, props: ClusterProps, **options: Any) -> None:
        super().__init__(scope, construct_id, stack_name=props.cluster_name, tags=dict(props.tags), **options)
        self._zone = _in_template(props.availability_zone or default_zone(self))
        self.cluster = DeepLearningCluster(self, "Cluster", props=props)
        for key, value in props.tags.items():
            cdk.Tags.of(self).add(key, value)
        for name, value in self._outputs().items():
            cdk.CfnOutput(self, name, value=value)

    @property
    def availability_zones(self) -> list[str]:
        """The cluster's one zone; asking AWS for all of them would need credentials at synth."""
        return [self._zone]

    def _outputs(self) -> dict[str, str]:
        cluster = self.cluster
        return {
            contract.MASTER_GROUP_OUTPUT: cluster.master.group.auto_scaling_group_name,
            contract.WORKER_GROUP_OUTPUT: cluster.workers.group.auto_scaling_group_name,
            contract.ADMIN_SECURITY_GROUP_OUTPUT: cluster.security.admin_ssh.security_group_id,
            contract.CLUSTER_NAME_OUTPUT: cluster.props.cluster_name,
            contract.TABLE_OUTPUT: cluster.table.table_name,
            contract.LOG_GROUP_OUTPUT: cluster.log_group.log_group_name,
            contract.BUCKET_OUTPUT: cluster.bucket.bucket_name,
            contract.LOGIN_USER_OUTPUT: LOGIN_USER,
            contract.NETWORKS_OUTPUT: cluster.props.vpc_cidr,
        }


def _in_template(zone: str | None) -> str:
    """The zone's name, or, where nobody could be asked, CloudFormation's own choice at the deploy."""
    return zone or cdk.Fn.select(0, cdk.Fn.get_azs())
