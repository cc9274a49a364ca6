"""Map a cluster's settings and resources to the configuration of its nodes."""

from typing import TYPE_CHECKING, Final

import aws_cdk as cdk

from bootstrap import contract
from bootstrap.config import NodeConfig
from stacks.nodes.machine_image import LOGIN_USER
from stacks.nodes.node_group import NodeGroup
from stacks.settings.storage import NO_SHARED_STORAGE

if TYPE_CHECKING:
    from stacks.cluster import DeepLearningCluster

NODE_READY_TIMEOUT_S: Final = 1200
"""Seconds after the agent's start at which a node that is not ready reports failure; setup_timeout is added."""


def node_config(cluster: "DeepLearningCluster", group: NodeGroup) -> NodeConfig:
    """Return the configuration of a group's nodes, from the cluster's settings and resources."""
    stack, props = cdk.Stack.of(cluster), cluster.props
    is_master = group.node_type == contract.MASTER
    elastic_ip = cluster.master_elastic_ip if is_master else None
    return NodeConfig(
        cluster_name=props.cluster_name,
        region=stack.region,
        node_type=group.node_type,
        group=contract.group_name(props.cluster_name, group.node_type),
        stack_id=stack.stack_id,
        signal_resource=group.signal_resource,
        fails_deploy=is_master or props.min_workers is None,
        min_nodes=None if props.min_workers is None else 1 + props.min_workers,
        master_trains=props.effective_master_trains,
        gpu_count=props.master_gpus if is_master else props.gpus,
        worker_gpu_count=props.gpus,
        efa_interfaces=props.master_efa_interfaces if is_master else props.efa_interfaces,
        # The reference makes CloudFormation delete the master before its address.
        address=elastic_ip.address if elastic_ip else None,
        address_allocation=elastic_ip.allocation_id if elastic_ip else None,
        table=cluster.table.table_name,
        networks=",".join(cluster.network.node_cidrs),
        log_group=cluster.log_group.log_group_name,
        bucket=cluster.bucket.bucket_name,
        master_role_id=cluster.roles.master.role_id,
        worker_role_id=cluster.roles.worker.role_id,
        mxnet_environment=props.mxnet_environment,
        shared_storage=None if props.shared_storage == NO_SHARED_STORAGE else props.shared_storage,
        shared_storage_resource=cluster.shared_storage.resource if cluster.shared_storage else None,
        setup=cluster.setup.url if cluster.setup else None,
        setup_sha256=cluster.setup.sha256 if cluster.setup else None,
        setup_timeout_s=props.setup_timeout_s,
        default_user=LOGIN_USER,
        # Each node also waits for the node with the slowest setup.
        bootstrap_timeout_s=NODE_READY_TIMEOUT_S + (props.setup_timeout_s or 0),
    )
