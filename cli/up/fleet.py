"""Start every node in one zone, or end what came: the groups are then empty again.

Each step looks at the groups first, so that a call that was killed anywhere is completed by the next.
"""

import sys
from dataclasses import dataclass

from bootstrap.aws.group_sizes import ClusterSizes
from bootstrap.contract import NODE_TYPES, NodeType
from cli.aws.clients import Clients
from cli.aws.clusters import Cluster
from cli.errors import ClusterError
from cli.sizes.groups import (
    GroupStates,
    held_instances,
    instance_ids,
    is_paused,
    open_groups,
    pause_groups,
    read_groups,
    resume_groups,
)
from cli.sizes.waiting import await_gone
from cli.up import attempt as attempts
from cli.up.launch import OF_THE_ZONE, Launched, launch_fleet


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What came of one try in a zone."""

    zone: str
    came: dict[NodeType, int]
    """Nodes that EC2 gave, which were ended unless all came."""
    reason: str = ""
    """EC2's reason; empty if the whole fleet is there."""
    is_final: bool = False
    """True if no other zone and no later try would do better."""

    @property
    def is_whole(self) -> bool:
        return not self.reason

    @property
    def nodes(self) -> int:
        """Return the number of nodes that came."""
        return sum(self.came.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class Fleet:
    """The nodes that a cluster is to have."""

    clients: Clients
    cluster: Cluster
    declared: ClusterSizes

    def read(self) -> GroupStates:
        """Return the groups as they are now."""
        return read_groups(self.clients.autoscaling, self.cluster.name)

    def start(self, zone: str) -> Outcome:
        """Launch every node in the zone of the groups; end what came if it is not all. Raises ClusterError."""
        groups, name = self.read(), self.cluster.name
        attempt = attempts.find(groups, self.declared) or attempts.begin(self.clients, name, zone, self.declared)
        open_groups(self.clients, groups, self.declared)
        try:
            launched = {} if self._has_all(groups) else launch_fleet(self.clients, name, attempt, self.declared)
        except Exception:
            # Whatever AWS refused: nothing may go on costing. A killed call is continued instead.
            self.end()
            raise
        failed = next((each for each in launched.values() if each.code), None)
        if failed is not None:
            self.end()
            return self._failed(zone, launched, failed)
        resume_groups(self.clients, name, self.declared)
        attempts.forget(self.clients, name)
        return Outcome(zone=zone, came={each: self.declared[each].desired for each in NODE_TYPES})

    def end(self) -> None:
        """End every node, and wait until all are gone."""
        groups = self.read()
        if instance_ids(groups):
            print(f"dlcluster: ending {', '.join(instance_ids(groups))}", file=sys.stderr)
        if not is_paused(groups):
            pause_groups(self.clients, self.cluster.name)
        if held := held_instances(groups):
            raise ClusterError(f"{', '.join(held)} would stay: dlcluster pause ends what is held, then dlcluster up")
        await_gone(self.clients, self.cluster)
        attempts.forget(self.clients, self.cluster.name)

    def _has_all(self, groups: GroupStates) -> bool:
        return all(len(groups[each].instances) >= self.declared[each].desired for each in NODE_TYPES)

    def _failed(self, zone: str, launched: dict[NodeType, Launched], failed: Launched) -> Outcome:
        return Outcome(
            zone=zone,
            came={node_type: each.count for node_type, each in launched.items()},
            reason=failed.reason,
            is_final=failed.code not in OF_THE_ZONE,
        )
