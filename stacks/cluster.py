"""Define the cluster as a construct, which any stack can contain."""

from dataclasses import replace
from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from constructs import Construct

from bootstrap import contract
from stacks.catalog.deep_learning_ami import ROOT_DEVICE
from stacks.cluster_role import RoleRules, apply_permissions_boundary
from stacks.flow_logs import FlowLogs
from stacks.hardening import acknowledge_rules
from stacks.immutable_settings import forbid_changes
from stacks.lifetime.capacity_block import look_up_capacity_block
from stacks.lifetime.lifetime_schedules import add_lifetime_schedules
from stacks.network.elastic_ip import MasterElasticIp
from stacks.network.existing_network import ExistingNetwork, existing_subnets
from stacks.network.network import Network
from stacks.network.security_groups import SecurityGroups
from stacks.network.zone import cluster_zone, network_zones, zone_warning
from stacks.nodes.bundle_asset import BundleAsset
from stacks.nodes.data_access import grant_data
from stacks.nodes.key_access import grant_key
from stacks.nodes.machine_image import machine_image
from stacks.nodes.node_config import node_config
from stacks.nodes.node_group import NodeGroup, NodeTemplate
from stacks.nodes.roles import NodeResources, NodeRoles
from stacks.nodes.secret_access import grant_secrets
from stacks.nodes.setup_asset import SetupAsset
from stacks.outputs import ClusterOutputs
from stacks.prices.price_list import price_list
from stacks.prices.rate import costs_by_use, declared_parts, describe_rate, hourly_rate
from stacks.settings.props import ClusterProps
from stacks.settings.purchase import SPOT
from stacks.storage.bucket import cluster_bucket
from stacks.storage.log_group import ClusterLogs
from stacks.storage.table import ClusterTable

if TYPE_CHECKING:
    from stacks.storage.shared_storage import SharedStorage


class DeepLearningCluster(Construct):
    """A master and its workers, with their network, storage and roles; a stack can have one such cluster."""

    def __init__(self, scope: Construct, construct_id: str, *, props: ClusterProps) -> None:
        super().__init__(scope, construct_id)
        self.props = props
        self.zone = cluster_zone(self, props)
        self.network = self._create_network()
        self.security_groups = self._create_security_groups()
        self.key = kms.Key.from_key_arn(self, "Key", props.kms_key) if props.kms_key else None
        # The ID is part of the table's logical ID: another one would replace the tables of deployed clusters.
        self.table = ClusterTable(self, "Storage", key=self.key, point_in_time_recovery=props.hardened).table
        self.bucket = cluster_bucket(self, cluster_name=props.cluster_name, adopted=props.bucket, key=self.key)
        self.shared_storage = self._create_shared_storage()
        self.log_group = ClusterLogs(self, "Logs", key=self.key).log_group
        rules = RoleRules.of(props)
        if props.flow_logs:
            FlowLogs(self, "FlowLogs", vpc=self.network.vpc, key=self.key, rules=rules)
        self.master_elastic_ip = self._create_master_elastic_ip()
        self.bundle = BundleAsset.publish(cdk.Stack.of(self))
        self.setup = SetupAsset.publish(cdk.Stack.of(self), props)
        self.roles = self._create_roles(rules)
        self.placement_group = self._create_placement_group()
        self.master, self.workers = self._create_node_groups()
        self._configure_node_groups()
        self.capacity_block = look_up_capacity_block(self, props)
        add_lifetime_schedules(
            self,
            props,
            block=self.capacity_block,
            master_role=self.roles.master,
            master=self.master,
            workers=self.workers,
            network=self.network,
        )
        forbid_changes(self, props, zone=self.zone)
        if props.permissions_boundary is not None:
            apply_permissions_boundary(self, props.permissions_boundary)
        if props.hardened:
            acknowledge_rules(self)
        self.price_summary = self._price_summary()
        ClusterOutputs(self)
        self._annotate()

    def _annotate(self) -> None:
        """Show the costs and the warnings at synth; refuse a deploy without an address for SSH."""
        props, annotations = self.props, cdk.Annotations.of(self)
        if props.unreachable_master_reason is not None:
            # An annotation stops a deploy but, unlike an exception, not a destroy.
            annotations.add_error(props.unreachable_master_reason)
        # The CDK's command line asks for bundling whenever a deploy may follow, but not for cdk destroy and list.
        if cdk.Stack.of(self).bundling_required:
            annotations.add_info(f"costs {self.price_summary} with all nodes running, plus {costs_by_use(props)}")
            if not props.has_zone:
                annotations.add_info(f"no node starts: dlcluster up finds capacity in one of {', '.join(props.zones)}")
        for warning_id, sentence in {**props.warnings(), **zone_warning(self.zone)}.items():
            annotations.add_warning_v2(f"deeplearning:{warning_id}", sentence)

    def _price_summary(self) -> str:
        """Describe the cost per hour, by the list prices of the region if they are known."""
        region = cdk.Stack.of(self).region
        prices = price_list(None if cdk.Token.is_unresolved(region) else region)
        return describe_rate(hourly_rate(declared_parts(self.props), prices), prices, purchase=self.props.purchase)

    def _create_network(self) -> Network | ExistingNetwork:
        if self.props.vpc_id is not None:
            return ExistingNetwork(self, "Network", subnets=existing_subnets(self, self.props))
        return Network(
            self,
            "Network",
            cluster_name=self.props.cluster_name,
            cidr=self.props.vpc_cidr,
            zones=network_zones(self, self.props),
            node_zone=self.zone,
            private=self.props.private,
            flow_logs=self.props.flow_logs,
        )

    def _create_security_groups(self) -> SecurityGroups:
        props = self.props
        groups = SecurityGroups(
            self,
            "Security",
            cluster_name=props.cluster_name,
            vpc=self.network.vpc,
            ssh_locations=None if props.private else props.ssh_locations,
            egress=props.egress,
            uses_efa=props.efa_interfaces > 0,
        )
        if props.existing_lustre is not None and isinstance(self.network, ExistingNetwork):
            groups.allow_lustre_servers(self.network.vpc_cidrs)
        return groups

    def _create_roles(self, rules: RoleRules) -> NodeRoles:
        """Return the roles of both groups, which may use the cluster's resources and what the settings name."""
        props = self.props
        roles = NodeRoles(
            self,
            "Roles",
            resources=NodeResources(
                table=self.table.table_arn,
                log_group=self.log_group.log_group_arn,
                bucket=self.bucket.bucket_arn,
                bundle=self.bundle.arn,
                elastic_ip=self.master_elastic_ip.arn if self.master_elastic_ip else None,
                creates_file_system=props.creates_file_system,
                has_lustre=props.existing_lustre is not None,
                setup=self.setup.arn if self.setup else None,
            ),
            private=props.private,
            rules=rules,
        )
        for role in (roles.master, roles.worker):
            grant_data(role, props)
            grant_secrets(role, props)
            if props.kms_key is not None:
                grant_key(role, props.kms_key, before=(self.table, self.bucket))
        return roles

    def _create_master_elastic_ip(self) -> MasterElasticIp | None:
        if self.props.private:
            return None
        subnet = self.network.subnet_for(contract.MASTER)
        return MasterElasticIp(self, "MasterAddress", cluster_name=self.props.cluster_name, subnet=subnet)

    def _create_shared_storage(self) -> "SharedStorage | None":
        """Return the mount target of EFS; None if the user's own VPC has one, and without shared storage."""
        props = self.props
        if not props.creates_mount_target:
            return None
        # Imported here: the CDK's module for EFS costs a tenth of a second, which only these clusters need.
        from stacks.storage.shared_storage import SharedStorage

        return SharedStorage(
            self,
            "SharedStorage",
            cluster_name=props.cluster_name,
            file_system_id=props.existing_efs,
            kms_key=props.kms_key,
            vpc=self.network.vpc,
            subnets=self.network.worker_subnets,
            nodes=self.security_groups,
            limits_egress=props.limits_egress,
        )

    def _create_node_groups(self) -> tuple[NodeGroup, NodeGroup]:
        template = NodeTemplate(
            cluster_name=self.props.cluster_name,
            instance_type=self.props.instance_type,
            image=machine_image(self, self.props),
            key_name=self.props.key_name,
            root_device=ROOT_DEVICE,
            root_volume_gib=self.props.root_volume_gib,
            volume_key=self.key,
            efa=self.props.instance_type_info if self.props.efa_interfaces else None,
            placement_group=self.placement_group.ref if self.props.uses_placement_group else None,
            capacity_reservation=self.props.capacity_reservation,
            uses_capacity_block=self.props.uses_capacity_block,
            is_spot=self.props.purchase == SPOT,
        )
        sizes = self.props.initial_sizes
        setup_timeout = cdk.Duration.seconds(self.props.setup_timeout_s or 0)
        master = NodeGroup(
            self,
            "Master",
            node_type=contract.MASTER,
            size=sizes[contract.MASTER],
            template=self._master_template(template),
            vpc=self.network.vpc,
            subnet=self.network.subnet_for(contract.MASTER),
            security_groups=self.security_groups.groups_for(contract.MASTER),
            role=self.roles.master.launch_template_role,
            setup_timeout=setup_timeout,
        )
        workers = NodeGroup(
            self,
            "Workers",
            node_type=contract.WORKER,
            size=sizes[contract.WORKER],
            template=template,
            vpc=self.network.vpc,
            subnet=self.network.subnet_for(contract.WORKER),
            security_groups=self.security_groups.groups_for(contract.WORKER),
            role=self.roles.worker.launch_template_role,
            setup_timeout=setup_timeout,
        )
        return master, workers

    def _configure_node_groups(self) -> None:
        """Give both groups their user data and dependencies, and the master the team's keys."""
        for node_group in (self.master, self.workers):
            node_group.set_user_data(node_config(self, node_group), self.bundle.source)
            # Nodes of an earlier deploy may still use the EFA security group and the placement group.
            node_group.asg.node.add_dependency(self.security_groups.efa_group, self.placement_group)
            if self.props.limits_egress:
                # Rules to prefix lists and to the shared storage are resources of their own.
                node_group.asg.node.add_dependency(self.security_groups)
            if self.props.private:
                # An SSM agent that is denied at its first attempt waits for minutes before the next.
                node_group.asg.node.add_dependency(self.roles)
        self.master.tag_keys(self.props.team_keys)

    def _master_template(self, template: NodeTemplate) -> NodeTemplate:
        """Return the master's template: a reservation only for the workers' type, a placement group only with EFA."""
        props = self.props
        # The master is never a spot instance: it keeps the membership, and jobs end with it.
        template = replace(template, is_spot=False)
        if props.master_type == props.instance_type and props.effective_master_trains:
            return template
        return replace(
            template,
            instance_type=props.master_type,
            efa=props.master_instance_type_info if props.master_efa_interfaces else None,
            placement_group=template.placement_group if props.master_efa_interfaces else None,
            capacity_reservation=template.capacity_reservation if props.master_type == props.instance_type else None,
        )

    def _create_placement_group(self) -> ec2.CfnPlacementGroup:
        """Return a group that keeps nodes close together; keep it even if unused: running nodes may be in it."""
        group = ec2.CfnPlacementGroup(self, "PlacementGroup", strategy="cluster")
        # Leave out the setting's tags: a changed tag would replace the group, which running nodes are in.
        group.add_property_override("Tags", [{"Key": "Name", "Value": self.props.cluster_name}])
        return group
