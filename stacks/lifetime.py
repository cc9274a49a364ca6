"""Define what ends a cluster: the schedules of ``expires`` and of a Capacity Block, and what its nodes must know.

stacks/settings/lifetime.py checks the settings. expiry.py and capacity_block.py each decide when something must happen;
schedules.py creates the schedules for them.
"""

from constructs import Construct, IConstruct

from bootstrap.contract import CAPACITY_BLOCK_PAUSES_TAG, EXPIRES_TAG, IDLE_STOP_TAG
from stacks.capacity_block import BlockSchedules, capacity_block
from stacks.cluster_role import ClusterRole, RoleRules
from stacks.expiry import Expiry
from stacks.network.existing_network import ExistingNetwork
from stacks.network.network import Network
from stacks.nodes.node_group import NodeGroup
from stacks.settings.lifetime import DELETE, iso
from stacks.settings.props import ClusterProps
from stacks.settings.purchase import CapacityBlock
from stacks.size_permissions import allow_zero_sizes


def limit_lifetime(
    scope: Construct,
    props: ClusterProps,
    master_role: ClusterRole,
    *,
    groups: tuple[NodeGroup, NodeGroup],
    network: Network | ExistingNetwork,
) -> CapacityBlock | None:
    """Add the schedules, and inform the master by tags of its group, which a deploy changes while the nodes run.

    Return the Capacity Block of the nodes, if any. The master's group is the first.
    """
    master, workers = groups
    if props.expires_at is not None:
        deletes = props.expiry_action == DELETE
        expiry = Expiry(
            scope,
            "Expiry",
            expires=props.expires_at,
            role_rules=RoleRules.of(props),
            deletes=deletes,
        )
        # CloudFormation first deletes what costs money, so that a failed deletion is retried.
        costly: list[IConstruct] = [master.group, workers.group]
        if isinstance(network, Network):
            costly.append(network.nat_gateway)
        for part in costly:
            part.node.add_dependency(expiry)
        master.tag_group(EXPIRES_TAG, iso(props.expires_at))
    block = capacity_block(scope, props)
    if block is not None:
        BlockSchedules(scope, "CapacityBlock", props=props, block=block)
        master.tag_group(CAPACITY_BLOCK_PAUSES_TAG, iso(block.pauses))
    if props.idle_stop is not None:
        allow_zero_sizes(master_role, props.cluster_name)
        master.tag_group(IDLE_STOP_TAG, str(props.idle_stop_s))
    return block
