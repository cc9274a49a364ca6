"""Add what ends a cluster: the schedules of ``expires`` and of a Capacity Block, and the permission of ``idle_stop``.

stacks/settings/lifetime.py checks the settings. expiry.py and capacity_block.py each decide when something must happen;
eventbridge_schedules.py creates the schedules for them.
"""

from constructs import Construct, IConstruct

from bootstrap.contract import CAPACITY_BLOCK_PAUSES_TAG, EXPIRES_TAG, IDLE_STOP_TAG
from stacks.cluster_role import ClusterRole, RoleRules
from stacks.lifetime.capacity_block import BlockSchedules
from stacks.lifetime.expiry import Expiry
from stacks.lifetime.size_permissions import allow_zero_sizes
from stacks.network.existing_network import ExistingNetwork
from stacks.network.network import Network
from stacks.nodes.node_group import NodeGroup
from stacks.settings.lifetime import DELETE
from stacks.settings.parsing import format_utc
from stacks.settings.props import ClusterProps
from stacks.settings.purchase import CapacityBlock


def add_lifetime_schedules(
    scope: Construct,
    props: ClusterProps,
    *,
    block: CapacityBlock | None,
    master_role: ClusterRole,
    master: NodeGroup,
    workers: NodeGroup,
    network: Network | ExistingNetwork,
) -> None:
    """Add the schedules, and inform the master by tags of its group, which a deploy changes while the nodes run."""
    if props.expires_at is not None:
        expiry = Expiry(
            scope,
            "Expiry",
            expires=props.expires_at,
            role_rules=RoleRules.of(props),
            deletes=props.expiry_action == DELETE,
        )
        # CloudFormation first deletes what costs money, so that a failed deletion is retried.
        costly: list[IConstruct] = [master.asg, workers.asg]
        if isinstance(network, Network):
            costly.append(network.nat_gateway)
        for resource in costly:
            resource.node.add_dependency(expiry)
        master.tag_group(EXPIRES_TAG, format_utc(props.expires_at))
    if block is not None:
        BlockSchedules(scope, "CapacityBlock", props=props, block=block)
        master.tag_group(CAPACITY_BLOCK_PAUSES_TAG, format_utc(block.pauses_at))
    if props.idle_stop is not None:
        allow_zero_sizes(master_role, props.cluster_name)
        master.tag_group(IDLE_STOP_TAG, str(props.idle_stop_s))
