"""The agent: makes an instance a node, tells CloudFormation so, and keeps it one.

Level-triggered: a pass looks at what is, not at what happened, and makes the node right.
Everything that can go wrong outside only delays it. `bootstrap.main` runs it as a service.
"""

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bootstrap.aws import Clients
from bootstrap.config import NodeConfig
from bootstrap.contract import HOST_KEY_FILE, MASTER, NODE_STATE, node_record_id
from bootstrap.coordinator import Coordinator
from bootstrap.errors import ConfigError, HostKeyError
from bootstrap.failures import DELAYS, Delay, reason
from bootstrap.files import write_file
from bootstrap.gpus import GpuCounter
from bootstrap.imds import Identity
from bootstrap.logs import LogShipper
from bootstrap.membership import EMPTY, Member, Membership
from bootstrap.node import Actions, NodeFiles, place, user_access
from bootstrap.phases import Phases
from bootstrap.signals import SIGNALLED_FILE, Signals
from bootstrap.table import NodeRecord, Table

log = logging.getLogger(__name__)

BOOTSTRAP_S: Final = 1.0
STEADY_S: Final = 5.0
LONGEST_S: Final = 15.0
LOOK_INCOMPLETE_S: Final = 2.0
LOOK_STEADY_S: Final = 10.0
RANDOM: Final = random.SystemRandom()
"""Spreads the polls of nodes that started at the same moment."""


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """What the agent touches: a test has another of each."""

    root: Path
    actions: Actions
    identify: Callable[[], Identity]
    connect: Callable[[str], Clients]
    shipper: LogShipper
    nvidia_smi: Callable[[], str | None]
    monotonic: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = lambda: RANDOM.uniform(0.5, 1.5)


@dataclass(frozen=True, kw_only=True, slots=True)
class Links:
    """The node's ways to the rest of the cluster, there once AWS has given it credentials."""

    identity: Identity
    table: Table
    signals: Signals
    coordinator: Coordinator | None
    """Only on the master."""


class Agent:
    """One node's agent; ``step`` makes one pass."""

    def __init__(self, config: NodeConfig, world: World) -> None:
        self._config = config
        self._world = world
        self._phases = Phases(monotonic=world.monotonic)
        self._deadline = first_start(world.root, now=world.monotonic()) + config.bootstrap_timeout_s
        self._links: Links | None = None
        self._gpus = GpuCounter(world.root, nvidia_smi=world.nvidia_smi)
        self._published: NodeRecord | None = None
        self._membership: Membership = EMPTY
        self._next_look = 0.0
        self._next_give_up = 0.0
        self._doing = "metadata"
        self._trouble: str | None = None
        self._failed_passes = 0

    @property
    def ready(self) -> bool:
        """Whether the stack has this node's word, or does not wait for it."""
        return self._links is not None and self._links.signals.sent

    def step(self) -> float:
        """Make one pass; return the seconds until the next."""
        error = self._attempt(self._make_right)
        self._note(error)
        if self._hopeless(error):
            self._give_up()
        self._world.shipper.ship()
        return self._delay() * self._world.jitter()

    def report_crash(self, error: Exception) -> None:
        """Tell the stack, which would otherwise wait for its timeout, of a defect of the agent's own."""
        log.error("agent crashed: %s: %s", type(error).__name__, error, exc_info=error)
        self._world.shipper.ship()  # the stack takes the node away when it has its word
        if self._links is not None and not self.ready:
            signals, why = self._links.signals, f"agent-crashed {type(error).__name__}"
            self._attempt(lambda: signals.failure(why))

    def _attempt(self, act: Callable[[], None]) -> Delay | None:
        try:
            act()
        except DELAYS as error:
            return error
        return None

    def _make_right(self) -> None:
        links = self._join()
        self._publish(links)
        self._membership = self._look(links)
        member = self._membership.member(links.identity.instance_id)
        if member is None:
            return
        self._phases.done("membership")
        self._write_files(member)
        if self._membership.complete and not links.signals.sent:
            self._phases.done("peers")
            self._doing = "stack"
            links.signals.success()
            self._phases.done("signal")

    def _join(self) -> Links:
        """Learn who we are and connect, once."""
        if self._links is not None:
            return self._links
        self._doing = "metadata"
        identity = self._world.identify()
        self._phases.done("identity")
        self._doing = "credentials"
        clients = self._world.connect(self._config.region)
        self._phases.done("credentials")
        self._world.shipper.connect(clients.logs, group=self._config.log_group, stream=identity.instance_id)
        self._links = self._link(identity, clients)
        return self._links

    def _link(self, identity: Identity, clients: Clients) -> Links:
        table = Table(clients.dynamodb, name=self._config.table)
        return Links(
            identity=identity,
            table=table,
            signals=Signals(
                clients.cloudformation,
                target=self._config.signal_target,
                instance_id=identity.instance_id,
                sent_file=place(self._world.root, SIGNALLED_FILE),
            ),
            coordinator=Coordinator(self._config, table=table, autoscaling=clients.autoscaling, ec2=clients.ec2)
            if self._config.node_type == MASTER
            else None,
        )

    def _publish(self, links: Links) -> None:
        """Write our own record when it says something new."""
        self._doing = "host-key"
        instance_id = links.identity.instance_id
        record = NodeRecord(
            record_id=node_record_id(self._config.role_id(self._config.node_type), instance_id),
            instance_id=instance_id,
            node_type=self._config.node_type,
            host_key=read_host_key(self._world.root),
        )
        if record != self._published:
            self._doing = "table"
            links.table.write_node(record)
            self._published = record
            self._phases.done("record")

    def _look(self, links: Links) -> Membership:
        """The membership: on the master from AWS, on the others from the table."""
        self._doing = "table"
        if links.coordinator is None:
            seen = links.table.read_membership()
            # The read is eventually consistent: an older answer must not undo a newer one.
            return seen if seen.generation >= self._membership.generation else self._membership
        now = self._world.monotonic()
        if now < self._next_look:
            return self._membership
        current = links.table.read_membership(consistent=True)
        self._doing = "groups"
        found = links.coordinator.reconcile(current)
        interval = LOOK_STEADY_S if found.complete else LOOK_INCOMPLETE_S
        self._next_look = now + interval
        return found

    def _write_files(self, member: Member) -> None:
        self._doing = "files"
        root = self._world.root
        user = user_access(self._config.default_user)
        files = NodeFiles(root, user=user, bucket=self._config.bucket, actions=self._world.actions)
        changed = files.write(self._membership, member=member, gpu_count=self._gpus.count())
        if changed:
            log.info("generation %d: wrote %s", self._membership.generation, ", ".join(changed))
        self._phases.done("files")

    def _hopeless(self, error: Delay | None) -> bool:
        now = self._world.monotonic()
        # A node that has only its signal left to send is not a failed one.
        late = (now >= self._deadline and self._doing != "stack") or isinstance(error, ConfigError)
        return late and not self.ready and now >= self._next_give_up

    def _give_up(self) -> None:
        """Tell the stack why this node is not ready; the agent goes on trying all the same."""
        self._next_give_up = self._world.monotonic() + LONGEST_S
        why = self._trouble or self._waiting()
        if self._links is None:
            log.warning("not a node in time: %s", why)
            return
        self._world.shipper.ship()  # the stack takes the node away when it has its word
        signals = self._links.signals
        error = self._attempt(lambda: signals.failure(why))
        if error is not None:
            log.warning("cannot signal the failure %s: %s", why, error)

    def _waiting(self) -> str:
        if self._membership.generation == 0:
            return "no-membership"
        return f"peers {len(self._membership.members)}/{self._membership.expected} joined"

    def _note(self, error: Delay | None) -> None:
        """Log a trouble when it comes and when it goes, not once a pass."""
        trouble = None if error is None else reason(error, doing=self._doing)
        self._failed_passes = 0 if error is None else self._failed_passes + 1
        if trouble == self._trouble:
            return
        if error is None:
            log.info("recovered from %s", self._trouble)
        else:
            log.warning("%s: %s", trouble, error)
        self._trouble = trouble

    def _delay(self) -> float:
        if self._failed_passes:
            return min(LONGEST_S, BOOTSTRAP_S * 2.0 ** min(self._failed_passes - 1, 8))
        if not self.ready:
            return BOOTSTRAP_S
        if self._config.node_type == MASTER and not self._membership.complete:
            return LOOK_INCOMPLETE_S
        return STEADY_S


def read_host_key(root: Path) -> str:
    """The public host key without its comment, which names nothing that others can use."""
    try:
        words = place(root, HOST_KEY_FILE).read_text().split()
    except FileNotFoundError as error:
        raise HostKeyError(f"{HOST_KEY_FILE} is not there yet") from error
    if len(words) < 2 or words[0] != "ssh-ed25519":
        raise HostKeyError(f"{HOST_KEY_FILE} must hold an ssh-ed25519 key, got {' '.join(words)[:40]!r}")
    return f"{words[0]} {words[1]}"


def first_start(root: Path, *, now: float) -> float:
    """When the agent first started since the machine came up, in monotonic seconds.

    A restarted agent must not get a new deadline. /run is empty after a reboot, when the
    monotonic clock starts anew too.
    """
    file = place(root, NODE_STATE).with_name("agent-started")
    try:
        return min(now, float(file.read_text()))
    except (FileNotFoundError, ValueError):
        write_file(file, f"{now}\n")
        return now
