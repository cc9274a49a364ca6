"""Format ``dlcluster status``: a summary, one row per node, and the reasons for missing nodes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from bootstrap.contract import (
    MOUNT_NO_ADDRESS,
    MOUNT_NO_CLIENT,
    MOUNT_NOT_KNOWN,
    MOUNT_OCCUPIED,
    MOUNT_REFUSED,
    MOUNT_STOPPED,
    MOUNT_UNREACHABLE,
    MOUNTED,
    VERSION,
)
from bootstrap.idle.pause_record import PauseRecord
from cli.aws.nodes import (
    GONE,
    RUNNING,
    TERMINATE_COMMAND,
    ClusterMembership,
    ClusterNode,
    Instance,
    missing_count,
    running_count,
)
from cli.reports.capacity_block import DeployedBlock
from cli.reports.releases import release_lines
from cli.shared_options import invocation
from stacks.settings.parsing import format_duration, format_utc

MOUNT_REASONS: Final = {
    MOUNT_NOT_KNOWN: "file system ID not known yet",
    MOUNT_NO_ADDRESS: "its DNS name resolves to no mount target",
    MOUNT_UNREACHABLE: "its mount target does not answer",
    MOUNT_REFUSED: "the file system refuses the mount",
    MOUNT_NO_CLIENT: "the image has no client for it",
    MOUNT_OCCUPIED: "something else is mounted on /shared",
    MOUNT_STOPPED: "the service that mounts it has ended (journalctl -u deeplearning-shared-storage)",
}
"""Explanation of each state except mounted."""
ENDED_STATES: Final = ("shutting-down", "terminated", GONE.state)
"""EC2's states of an instance that is lost."""
PAUSE_TOLERANCE: Final = timedelta(minutes=2)
"""Time after ``expires`` for which a cluster may still run: the schedule is accurate to a minute."""
COLUMNS = ("INDEX", "NODE", "INSTANCE", "TYPE", "ZONE", "PRIVATE", "PUBLIC", "STATE")


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """A cluster's nodes: desired, members, and EC2's view of each."""

    cluster_name: str
    region: str
    membership: ClusterMembership
    instances: Mapping[str, Instance]
    """EC2's view of each member, by instance id."""
    desired_nodes: int
    protected_instances: Mapping[str, str] = field(default_factory=dict)
    """Instances that scaling in to zero does not terminate, with the reason."""
    bake_workers: Sequence[str] = ()
    """Instances that were chosen for an image and are in no group."""
    expires: datetime | None = None
    """Time from which AWS pauses the cluster."""
    capacity_block: DeployedBlock | None = None
    """Capacity Block of its nodes."""
    deletes_stack: bool = False
    """True if AWS also deletes the stack afterwards."""
    release: str = ""
    """Release that new nodes run (contract.RELEASE_FIELD)."""
    idle_stop: timedelta | None = None
    """Time without use after which the master pauses the cluster; None for never."""
    pause: PauseRecord = field(default_factory=PauseRecord)
    """The master's record of upcoming pauses."""

    @property
    def running(self) -> int:
        """Return the number of running members that are not draining."""
        return running_count(self.membership, self.instances)

    @property
    def missing(self) -> int:
        """Return the number of desired nodes that are missing."""
        return missing_count(self.membership, self.instances, desired_nodes=self.desired_nodes)

    @property
    def summary(self) -> str:
        """Summarize all nodes in one line."""
        if self.desired_nodes == 0:
            survivors = sum(
                member.instance_id in self.protected_instances
                for member in self.membership.members
                if not member.draining
            )
            terminating = self.running - survivors
            left = f", nodes still shutting down: {terminating}" if terminating > 0 else ""
            hint = "" if self.capacity_block else f"; {invocation()} resume brings its nodes back"
            return f"{self.cluster_name}: paused{left}{hint}"
        counts = f"{self.running} of {self.desired_nodes} nodes"
        if self.running > self.desired_nodes:
            terminating = self.running - self.desired_nodes
            others = f"{terminating} {_is_or_are(terminating)} terminating"
            counts = f"{self.running} nodes running, {self.desired_nodes} desired: {others}"
        return f"{self.cluster_name}: {counts}, generation {self.membership.generation}"

    def lines(self, now: datetime, reasons: Sequence[str]) -> Iterator[str]:
        """Yield all lines below the table; `reasons` are those for missing nodes."""
        yield from self.pause_and_cost_lines(now)
        yield from (*self.release_lines(), *self.setup_lines(), *self.shared_storage_lines())
        yield from self.missing_lines(reasons)

    def pause_and_cost_lines(self, now: datetime) -> Iterator[str]:
        """Yield the lines about pauses and unexpected costs."""
        yield from self.schedule_lines(now)
        yield from self.idle_lines(now)
        yield from self.warnings(now)

    def schedule_lines(self, now: datetime) -> Iterator[str]:
        """Yield when AWS pauses or deletes a running cluster, and the times of its Capacity Block, if any."""
        if self.capacity_block is not None:
            yield self.capacity_block.line(now)
            if not self.desired_nodes and self.capacity_block.starts_at <= now < self.capacity_block.pauses_at:
                yield f"{invocation()} resume starts its nodes in the block"
        if self.desired_nodes and self.expires is not None and now < self.expires:
            hours, minutes = divmod((self.expires - now) // timedelta(minutes=1), 60)
            outcome = "pauses it, then deletes its stack" if self.deletes_stack else "pauses it"
            when = f"in {hours} h {minutes} min, at {format_utc(self.expires)}"
            yield f"AWS {outcome} {when}; {invocation()} extend 8h postpones it"

    def idle_lines(self, now: datetime) -> Iterator[str]:
        """Yield how long the cluster has been idle, when it pauses, and which nodes do not report."""
        if self.desired_nodes == 0:
            return
        since, pauses_at = self.pause.idle_since, self.idle_pauses_at
        if since is not None and pauses_at is not None and now <= pauses_at + PAUSE_TOLERANCE:
            minutes = max(now - since, timedelta()) // timedelta(minutes=1)
            condition = "" if self.pause.pauses_at else " if it stays idle"
            yield f"idle for {minutes} min; pauses at {pauses_at:%H:%M} UTC{condition}"
        elif self.idle_stop is not None:
            # The master calls a cluster idle five minutes after the last use (REPORT_MAX_AGE_S), and its record has no
            # idle_stop_s until it has read the tag.
            in_use = "; in use now or in the last 5 min" if self.pause.idle_stop_s and since is None else ""
            yield f"pauses after {format_duration(self.idle_stop)} without use{in_use}"
        for member in self.membership.members:
            if member.instance_id in self.pause.silent:
                yield f"{member.short_name} is unhealthy: its agent reports nothing, so it no longer counts as busy"

    @property
    def idle_pauses_at(self) -> datetime | None:
        """Return when an idle cluster pauses, as announced or as currently expected; None for a busy one."""
        if self.pause.idle_since is None:
            return None
        return self.pause.pauses_at or self.pause.idle_since + timedelta(seconds=self.pause.idle_stop_s)

    def warnings(self, now: datetime) -> Iterator[str]:
        """Yield a warning for everything that costs money unexpectedly.

        That is an instance in no group, a cluster that outlived `expires` or its Capacity Block, or an instance that a
        pause does not terminate.
        """
        for instance_id in self.bake_workers:
            yield (
                f"{instance_id} was detached from its Auto Scaling group to make an image, and still costs money: if "
                "no dlcluster bake is running, run it again to finish, or terminate the instance: "
                f"{TERMINATE_COMMAND} {instance_id}"
            )
        block = self.capacity_block
        if self.desired_nodes and block is not None and now > block.pauses_at + PAUSE_TOLERANCE:
            advice = f"{invocation()} pause terminates its nodes"
            yield f"{self.cluster_name} should have paused by now, because its Capacity Block ends: {advice}"
        if self.desired_nodes and self.expires is not None and now > self.expires + PAUSE_TOLERANCE:
            yield (
                f"{self.cluster_name} expired at {format_utc(self.expires)} and is not paused: most likely the role of "
                "its schedules or a policy of your organization (SCP) denies autoscaling:UpdateAutoScalingGroup, which "
                f"CloudTrail shows; {invocation()} pause terminates its nodes"
            )
        if not self.desired_nodes:
            for instance_id, reason in self.protected_instances.items():
                yield f"{instance_id} is {reason} and does not terminate by itself: {invocation()} pause terminates it"

    def rows(self) -> list[tuple[str, ...]]:
        """Return one row per node, with the cells of COLUMNS."""
        return [self._row(member) for member in self.membership.members]

    def _row(self, member: ClusterNode) -> tuple[str, ...]:
        instance = self.instances[member.instance_id]
        state = instance.state
        if member.draining and state == RUNNING:
            state = f"{state}, {'setup failed' if member.has_failed_setup else 'draining'}"
        location_cells = (instance.instance_type, instance.zone, member.address, instance.public_address)
        return (str(member.node_index), member.short_name, member.instance_id, *location_cells, state)

    def to_dict(self, reasons: Sequence[str], now: datetime) -> dict[str, Any]:
        """Return the status at `now` as a JSON object; `reasons` are those for missing nodes."""
        return {
            "cluster": self.cluster_name,
            "region": self.region,
            "generation": self.membership.generation,
            "desired_nodes": self.desired_nodes,
            "running_nodes": self.running,
            "missing_nodes": self.missing,
            "nodes": [self._node(member) for member in self.membership.members],
            "reasons": list(reasons),
            "expires": format_utc(self.expires) if self.expires else None,
            "capacity_block": self.capacity_block.to_dict() if self.capacity_block else None,
            "idle_stop": format_duration(self.idle_stop) if self.idle_stop else None,
            "idle_since": format_utc(self.pause.idle_since) if self.pause.idle_since else None,
            "idle_pauses_at": format_utc(self.idle_pauses_at) if self.idle_pauses_at else None,
            "warnings": [*self.warnings(now)],
            "shared_storage": self.membership.shared_storage or None,
            "release": {"dlcluster": VERSION, "stack": self.release or None, "differences": self.release_lines()},
        }

    def _node(self, member: ClusterNode) -> dict[str, Any]:
        instance = self.instances[member.instance_id]
        return {
            "index": member.node_index,
            "name": member.short_name,
            "instance_id": member.instance_id,
            "instance_type": instance.instance_type or None,
            "zone": instance.zone or None,
            "private_address": member.address,
            "public_address": instance.public_address or None,
            "state": instance.state,
            "draining": member.draining and not member.has_failed_setup,
            "shared_storage": member.mount or None,
            "setup": _setup(member.setup),
            "release": member.release or None,
        }

    def shared_storage_lines(self) -> list[str]:
        """Return where the shared storage is mounted, and why it is not elsewhere; empty without shared storage."""
        states = {member.short_name: member.mount for member in self.membership.members if member.mount}
        if not states:
            return []
        mounted = sum(state == MOUNTED for state in states.values())
        name = self.membership.shared_storage.partition(":")[2] or "not known yet"
        return [
            f"shared storage {name}: on {mounted} of {len(self.membership.members)} nodes",
            *(f"{node}: {MOUNT_REASONS[state]}; retrying" for node, state in states.items() if state != MOUNTED),
        ]

    def release_lines(self) -> list[str]:
        """Return what has another release, and what to do; empty if all releases are the same."""
        return release_lines(self.membership.members, stack=self.release)

    def setup_lines(self) -> list[str]:
        """Return which setup ran on how many nodes, and where one has failed; empty without a setup."""
        members = [member for member in self.membership.members if member.setup]
        counts = Counter(member.setup.partition(":")[2] for member in members if not member.has_failed_setup)
        failed = [member for member in members if member.has_failed_setup]
        total = len(self.membership.members)
        return [
            *(f"setup {sha256}: done on {count} of {total} nodes" for sha256, count in counts.items()),
            *(
                f"{member.short_name}: setup {member.setup.partition(':')[2]} failed, so no job runs there "
                f"({invocation()} why shows the node's last lines)"
                for member in failed
            ),
        ]

    def missing_lines(self, reasons: Sequence[str]) -> list[str]:
        """Return how many nodes are missing, and why; empty if none is."""
        if not self.missing:
            return []
        joined = len(self.membership.members)
        have = "has" if joined == 1 else "have"
        numbers = f"{joined} {have} joined, {self.running} of these {_is_or_are(self.running)} running"
        return [
            f"{self.missing} of {self.desired_nodes} nodes missing: {numbers} ({invocation()} why shows more)",
            *self._lost_lines(),
            *reasons,
        ]

    def _lost_lines(self) -> list[str]:
        """Return which members' instances have ended, in one line; empty if none has."""
        lost = [
            member.short_name
            for member in self.membership.members
            if not member.draining and self.instances[member.instance_id].state in ENDED_STATES
        ]
        if not lost:
            return []
        was, instances, them = ("was", "its instance", "it") if len(lost) == 1 else ("were", "their instances", "them")
        names = " and ".join(filter(None, (", ".join(lost[:-1]), lost[-1])))
        return [f"{names} {was} lost, {instances} terminated: EC2 Auto Scaling is replacing {them}"]


def _is_or_are(count: int) -> str:
    return "is" if count == 1 else "are"


def _setup(outcome: str) -> dict[str, str] | None:
    word, _, sha256 = outcome.partition(":")
    return {"outcome": word, "sha256": sha256} if outcome else None
