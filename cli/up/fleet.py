"""Start every node in one zone, or terminate those that were launched, which empties the groups again.

Each step inspects the groups first, so that the next run completes one that was killed at any point.
"""

from dataclasses import dataclass

from botocore.exceptions import ClientError

from bootstrap.aws.group_sizes import ClusterSizes
from bootstrap.contract import NODE_TYPES, NodeType
from cli.aws.clients import Clients
from cli.aws.clusters import Cluster
from cli.cluster_lock import Lock, LockHeldError
from cli.errors import ClusterError
from cli.node_groups.groups import (
    GroupStates,
    instance_ids,
    list_launch_zones,
    list_zones,
    raise_max_sizes,
    read_groups,
    resume_groups,
)
from cli.up.attempt import ZoneAttempt, begin_attempt, find_attempt, forget_attempt, recorded_attempt
from cli.up.launch import ZONE_CAPACITY_CODES, Launch, LaunchResult
from cli.up.terminate_fleet import terminate_fleet
from cli.up.zone_deployer import ZoneDeployer


@dataclass(frozen=True, kw_only=True, slots=True)
class ZoneOutcome:
    """Result of one attempt in a zone."""

    zone: str
    launched: dict[NodeType, int]
    """Number of nodes that EC2 launched. If any node was missing, these were terminated."""
    reason: str = ""
    """EC2's reason; empty if the complete fleet is up."""
    is_final: bool = False
    """True if neither another zone nor a later attempt would do better."""

    @property
    def is_complete(self) -> bool:
        """Return True if every node was launched."""
        return not self.reason

    @property
    def nodes(self) -> int:
        """Return the number of nodes that were launched."""
        return sum(self.launched.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class Fleet:
    """The cluster's nodes, not an EC2 Fleet: launches all in one zone, or terminates those that were launched."""

    clients: Clients
    cluster: Cluster
    declared: ClusterSizes
    lock: Lock

    @classmethod
    def of_stack(cls, deployer: ZoneDeployer, declared: ClusterSizes) -> "Fleet":
        """Return the fleet of the deployed stack. Raises ClusterError."""
        return cls(clients=deployer.clients, cluster=deployer.find_cluster(), declared=declared, lock=deployer.lock)

    def read(self) -> GroupStates:
        """Return the groups' current state."""
        return read_groups(self.clients.autoscaling, self.cluster.name)

    def start(self, zone: str) -> ZoneOutcome:
        """Launch every node in the groups' zone; if any is missing, terminate the others. Raises ClusterError.

        Nodes without a recorded attempt are another's fleet, so they are left alone.
        """
        self.lock.acquire_or_renew()
        name, groups = self.cluster.name, self.read()
        if (launch_zones := list_launch_zones(groups)) != {zone}:
            where = f"the groups of {name} are in {' and '.join(sorted(launch_zones))}, not in {zone}"
            raise ClusterError(f"{where}: run dlcluster up again")
        attempt = find_attempt(groups, self.declared)
        if attempt is None or not self.can_continue(attempt, groups):
            recorded = recorded_attempt(groups)
            if recorded is None and instance_ids(groups):
                raise ClusterError(
                    f"{name} has new nodes that belong to no recorded attempt: run dlcluster up again to continue"
                )
            if recorded is not None:
                self.terminate(may_still_launch=True)
                groups = self.read()
            attempt = begin_attempt(self.clients, name, zone, self.declared)
        raise_max_sizes(self.clients, groups, self.declared)
        launch = Launch(
            clients=self.clients,
            name=name,
            attempt=attempt,
            declared=self.declared,
            before_call=self.lock.acquire_or_renew,
        )
        try:
            launched = launch.run(groups)
        except LockHeldError:
            raise
        except Exception as error:  # whatever failed, no node may keep costing money; a killed run is continued later
            self.terminate(may_still_launch=not isinstance(error, ClientError))
            raise
        failed = next((result for result in launched.values() if result.code), None)
        if failed is not None:
            self.terminate()
            return self._failed(zone, launched, failed)
        resume_groups(self.clients, name, self.declared)
        forget_attempt(self.clients, name)
        return ZoneOutcome(
            zone=zone, launched={node_type: self.declared[node_type].desired_capacity for node_type in NODE_TYPES}
        )

    def can_continue(self, attempt: ZoneAttempt, groups: GroupStates) -> bool:
        """Return True if the attempt can continue: groups and nodes are in its zone, and AWS knows its tokens.

        A deploy in between may have moved the groups away from their nodes.
        """
        is_there = list_launch_zones(groups) == {attempt.zone} and list_zones(groups) <= {attempt.zone}
        return is_there and (not attempt.is_old or self._has_all(groups))

    def terminate(self, *, may_still_launch: bool = False) -> None:
        """Terminate every node, and wait until all are gone. Raises ClusterError."""
        self.lock.acquire_or_renew()
        terminate_fleet(self.clients, self.cluster, self.lock, may_still_launch=may_still_launch)

    def _has_all(self, groups: GroupStates) -> bool:
        return all(
            len(groups[node_type].instances) >= self.declared[node_type].desired_capacity for node_type in NODE_TYPES
        )

    def _failed(self, zone: str, launched: dict[NodeType, LaunchResult], failed: LaunchResult) -> ZoneOutcome:
        return ZoneOutcome(
            zone=zone,
            launched={node_type: result.count for node_type, result in launched.items()},
            reason=failed.reason,
            is_final=failed.code not in ZONE_CAPACITY_CODES,
        )
