"""Give a cluster's stack the outputs by which dlcluster and scripts find the cluster."""

from typing import TYPE_CHECKING

import aws_cdk as cdk
from constructs import Construct

from bootstrap import contract
from stacks.nodes.machine_image import LOGIN_USER
from stacks.settings.lifetime import DELETE
from stacks.settings.parsing import format_utc
from stacks.settings.storage import NO_SHARED_STORAGE

if TYPE_CHECKING:
    from stacks.cluster import DeepLearningCluster


class ClusterOutputs(Construct):
    """The outputs of one cluster, in the stack that contains it. Raises ValueError if that stack has another cluster.

    They have their own scope, as the stack may have constructs of the same names.
    """

    def __init__(self, cluster: "DeepLearningCluster") -> None:
        super().__init__(cluster, "Outputs")
        self.cluster_name = cluster.props.cluster_name
        stack = cdk.Stack.of(self)
        others = [construct for construct in stack.node.find_all() if isinstance(construct, ClusterOutputs)]
        # The search also finds the clusters of stacks below this one.
        names = [other.cluster_name for other in others if cdk.Stack.of(other).node.addr == stack.node.addr]
        if len(names) > 1:
            raise ValueError(f"stack {stack.stack_name} must have one DeepLearningCluster, got {' and '.join(names)}")
        for name, value in _outputs(cluster).items():
            # dlcluster looks for this name, wherever in the stack the cluster is.
            cdk.CfnOutput(self, name, value=value).override_logical_id(name)


def _outputs(cluster: "DeepLearningCluster") -> dict[str, str]:
    private = {contract.PRIVATE_OUTPUT: "true"} if cluster.props.private else {}
    return {
        **private,
        contract.MASTER_GROUP_OUTPUT: cluster.master.asg.auto_scaling_group_name,
        contract.WORKER_GROUP_OUTPUT: cluster.workers.asg.auto_scaling_group_name,
        contract.ADMIN_SECURITY_GROUP_OUTPUT: cluster.security_groups.admin_ssh.security_group_id,
        contract.CLUSTER_NAME_OUTPUT: cluster.props.cluster_name,
        contract.TABLE_OUTPUT: cluster.table.table_name,
        contract.LOG_GROUP_OUTPUT: cluster.log_group.log_group_name,
        contract.BUCKET_OUTPUT: cluster.bucket.bucket_name,
        contract.LOGIN_USER_OUTPUT: LOGIN_USER,
        contract.NETWORKS_OUTPUT: ",".join(cluster.network.node_cidrs),
        contract.PRICE_OUTPUT: cluster.price_summary,
        contract.RELEASE_OUTPUT: contract.release_name(cluster.bundle.source.sha256),
        **_allow_list_output(cluster),
        **_expiry_outputs(cluster),
        **_block_output(cluster),
        **_shared_storage_output(cluster),
        **_setup_output(cluster),
        **_security_outputs(cluster),
    }


def _allow_list_output(cluster: "DeepLearningCluster") -> dict[str, str]:
    """Output the list of addresses that ``dlcluster allow-ip`` changes; a private cluster has none."""
    allow_list = cluster.security_groups.allow_list
    return {contract.ALLOW_LIST_OUTPUT: allow_list.attr_prefix_list_id} if allow_list else {}


def _expiry_outputs(cluster: "DeepLearningCluster") -> dict[str, str]:
    props = cluster.props
    if props.expires_at is None:
        return {}
    deletes = {contract.EXPIRY_ACTION_OUTPUT: DELETE} if props.expiry_action == DELETE else {}
    return {contract.EXPIRES_OUTPUT: format_utc(props.expires_at), **deletes}


def _block_output(cluster: "DeepLearningCluster") -> dict[str, str]:
    """Output the Capacity Block, its start, the time at which its nodes are terminated, and its end."""
    block = cluster.capacity_block
    if block is None:
        return {}
    times = (block.starts_at, block.pauses_at, block.ends_at)
    return {contract.CAPACITY_BLOCK_OUTPUT: " ".join((block.block_id, *map(format_utc, times)))}


def _shared_storage_output(cluster: "DeepLearningCluster") -> dict[str, str]:
    """Output the file system that the nodes share, which ``cdk destroy`` keeps."""
    setting, created = cluster.props.shared_storage, cluster.shared_storage
    if setting == NO_SHARED_STORAGE:
        return {}
    return {contract.SHARED_STORAGE_OUTPUT: created.file_system_id if created else setting.partition(":")[2]}


def _security_outputs(cluster: "DeepLearningCluster") -> dict[str, str]:
    """Output what `dlcluster preflight` compares, and the key that `dlcluster policy` names."""
    props = cluster.props
    values = {contract.KMS_KEY_OUTPUT: props.kms_key, contract.ROLE_PREFIX_OUTPUT: props.role_name_prefix}
    return {output: value for output, value in values.items() if value is not None}


def _setup_output(cluster: "DeepLearningCluster") -> dict[str, str]:
    """Output the user's setup, which ``dlcluster setup`` brings to nodes that already run."""
    setup = cluster.setup
    if setup is None:
        return {}
    return {contract.SETUP_OUTPUT: f"{setup.url} {setup.sha256} {cluster.props.setup_timeout_s}"}
