"""Define the stack that app.py deploys: one cluster and its outputs."""

from typing import Any

import aws_cdk as cdk
from constructs import Construct

from bootstrap import contract
from stacks.cluster import DeepLearningCluster
from stacks.network.zone import network_zones
from stacks.nodes.machine_image import LOGIN_USER
from stacks.settings.lifetime import DELETE, iso
from stacks.settings.props import ClusterProps
from stacks.settings.storage import NO_SHARED_STORAGE


class ClusterStack(cdk.Stack):
    """A stack named after its cluster; dlcluster and scripts find the cluster by the stack's outputs."""

    def __init__(self, scope: Construct, construct_id: str, *, props: ClusterProps, **options: Any) -> None:
        options = {"description": contract.STACK_DESCRIPTION, **options}
        super().__init__(scope, construct_id, stack_name=props.cluster_name, tags=dict(props.tags), **options)
        self._zones = network_zones(self, props)
        self.cluster = DeepLearningCluster(self, "Cluster", props=props)
        for key, value in props.tags.items():
            cdk.Tags.of(self).add(key, value)
        for name, value in self._outputs().items():
            cdk.CfnOutput(self, name, value=value)

    @property
    def availability_zones(self) -> list[str]:
        """Return the zones of the cluster's subnets; the CDK's own list of zones would need credentials at synth."""
        return self._zones

    def _outputs(self) -> dict[str, str]:
        cluster = self.cluster
        private = {contract.PRIVATE_OUTPUT: "true"} if cluster.props.private else {}
        return {
            **private,
            contract.MASTER_GROUP_OUTPUT: cluster.master.group.auto_scaling_group_name,
            contract.WORKER_GROUP_OUTPUT: cluster.workers.group.auto_scaling_group_name,
            contract.ADMIN_SECURITY_GROUP_OUTPUT: cluster.security_groups.admin_ssh.security_group_id,
            contract.CLUSTER_NAME_OUTPUT: cluster.props.cluster_name,
            contract.TABLE_OUTPUT: cluster.table.table_name,
            contract.LOG_GROUP_OUTPUT: cluster.log_group.log_group_name,
            contract.BUCKET_OUTPUT: cluster.bucket.bucket_name,
            contract.LOGIN_USER_OUTPUT: LOGIN_USER,
            contract.NETWORKS_OUTPUT: cluster.network.networks,
            contract.PRICE_OUTPUT: cluster.price,
            contract.RELEASE_OUTPUT: contract.release_name(cluster.bundle.source.sha256),
            **self._allow_list_output(),
            **self._expiry_outputs(),
            **self._block_output(),
            **self._shared_storage_output(),
            **self._setup_output(),
            **self._security_outputs(),
        }

    def _allow_list_output(self) -> dict[str, str]:
        """Output the list of addresses that ``dlcluster allow-ip`` changes; a private cluster has none."""
        allow_list = self.cluster.security_groups.allow_list
        return {contract.ALLOW_LIST_OUTPUT: allow_list.attr_prefix_list_id} if allow_list else {}

    def _expiry_outputs(self) -> dict[str, str]:
        props = self.cluster.props
        if props.expires_at is None:
            return {}
        deletes = {contract.EXPIRY_ACTION_OUTPUT: DELETE} if props.expiry_action == DELETE else {}
        return {contract.EXPIRES_OUTPUT: iso(props.expires_at), **deletes}

    def _block_output(self) -> dict[str, str]:
        """Output the Capacity Block, its start, the time at which its nodes are terminated, and its end."""
        block = self.cluster.block
        if block is None:
            return {}
        return {
            contract.CAPACITY_BLOCK_OUTPUT: " ".join(
                (block.block_id, *map(iso, (block.starts, block.pauses, block.ends)))
            )
        }

    def _shared_storage_output(self) -> dict[str, str]:
        """Output the file system that the nodes share, which ``cdk destroy`` keeps."""
        setting, created = self.cluster.props.shared_storage, self.cluster.shared_storage
        if setting == NO_SHARED_STORAGE:
            return {}
        return {contract.SHARED_STORAGE_OUTPUT: created.file_system_id if created else setting.partition(":")[2]}

    def _security_outputs(self) -> dict[str, str]:
        """Output what `dlcluster preflight` compares, and the key that `dlcluster policy` names."""
        props = self.cluster.props
        values = {contract.KMS_KEY_OUTPUT: props.kms_key, contract.ROLE_PREFIX_OUTPUT: props.role_name_prefix}
        return {output: value for output, value in values.items() if value is not None}

    def _setup_output(self) -> dict[str, str]:
        """Output the user's setup, which ``dlcluster setup`` brings to nodes that already run."""
        setup = self.cluster.setup
        if setup is None:
            return {}
        return {contract.SETUP_OUTPUT: f"{setup.url} {setup.sha256} {self.cluster.props.setup_timeout_s}"}
