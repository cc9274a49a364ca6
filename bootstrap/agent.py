"""The agent: makes an instance a node, tells CloudFormation so, and keeps it one.

Level-triggered: a pass looks at what is, not at what happened, and makes the node right.
Everything that can go wrong outside only delays it. `bootstrap.main` runs it as a service.
"""

import logging
import socket
from collections.abc import Callable
from typing import Final

from bootstrap.aws.imds import Outlook
from bootstrap.cluster.membership import EMPTY, Member, Membership
from bootstrap.cluster.node_record import OwnRecord
from bootstrap.cluster.poll_interval import EAGER_S, Pace
from bootstrap.config import NodeConfig
from bootstrap.errors import ConfigError, MetadataError
from bootstrap.failures import DELAYS, Delay, is_own, reason
from bootstrap.files.node_files import NodeFiles
from bootstrap.frameworks.errors import EnginesError
from bootstrap.frameworks.state import Engines
from bootstrap.health.checks import Finding, Health
from bootstrap.health.gpus import GpuCounter
from bootstrap.host_services import Links, World, link
from bootstrap.phases import Phases, first_start

log = logging.getLogger(__name__)

BOOTSTRAP_S: Final = 1.0
EAGER_FOR_S: Final = 300.0
"""A node that is not ready by then waits for something that takes its time."""
STEADY_S: Final = 6.0
"""At most ten reads of the table a minute; LEAVING's grace is longer than this."""
LONGEST_S: Final = 15.0
HEALTH_S: Final = 60.0
DEFECTS: Final = 3
"""So many times in a row a node must find itself broken before it asks to be replaced."""


class Agent:
    """One node's agent; ``step`` makes one pass."""

    def __init__(self, config: NodeConfig, world: World) -> None:
        self._config = config
        self._world = world
        self._phases = Phases(monotonic=world.monotonic)
        self._start = first_start(world.root, now=world.monotonic())
        self._links: Links | None = None
        self._gpus = GpuCounter(
            world.root, expected=config.gpu_count, nvidia_smi=world.nvidia_smi, monotonic=world.monotonic
        )
        self._health = Health(
            root=world.root,
            expected_gpus=config.gpu_count,
            count_gpus=self._gpus.known,
            resolve=world.resolve,
            answers=world.answers_ssh,
        )
        self._pace = Pace()
        self._outlook = Outlook()
        self._record = OwnRecord(config, world)
        self._membership: Membership = EMPTY
        self._has_looked = False
        self._next_look = 0.0
        self._next_give_up = 0.0
        self._next_health = 0.0
        self._defects = 0
        self._finding: Finding | None = None
        self._engines = Engines(world.root, name=config.engines)
        self._doing = "metadata"
        self._error: Delay | None = None
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
        if self._links is not None:
            self._look_after_itself(self._links)
        self._world.shipper.ship()
        return self._delay() * self._world.jitter()

    def _attempt(self, act: Callable[[], None]) -> Delay | None:
        try:
            act()
        except DELAYS as error:
            return error
        return None

    def _make_right(self) -> None:
        links = self._join()
        self._outlook = self._look_ahead()
        if self._outlook.ending:
            self._try(links.leaving.hold)  # what follows may take long
        self._publish(links)
        self._membership = self._look(links)
        self._has_looked = True
        member = self._membership.member(links.identity.instance_id)
        if member is not None:
            self._phases.done("membership")
            self._write_files(member)
        if self._membership.lists(links.identity.instance_id) and not self._outlook.leaving and not links.signals.sent:
            self._become_ready(links)

    def _become_ready(self, links: Links) -> None:
        """Be a node that others can count on, and say so."""
        self._take_address(links)
        self._doing = "engines"
        has_engines = self._engines.ready()
        if self._membership.has(self._config.min_nodes):
            self._phases.done("peers")
            if not has_engines:
                return
            self._phases.done("engines")
            self._doing = "checks"
            self._finding = self._health.before_ready(self._membership.present)
            if self._finding is None:
                self._doing = "stack"
                links.signals.success()
                self._phases.done("signal")

    def _take_address(self, links: Links) -> None:
        if links.address is not None:
            self._doing = "address"
            links.address.take(self._outlook.public_address)

    def _look_after_itself(self, links: Links) -> None:
        """What a node does for itself, whatever came of the pass: a broken one may not get to its end."""
        duties: list[Callable[[], None]] = []
        if self._outlook.leaving:
            duties.append(lambda: links.leaving.follow(self._outlook, self._membership if self._has_looked else None))
        elif links.signals.sent:
            duties.append(lambda: self._watch_health(links))
            if self._membership.lists(links.identity.instance_id):
                duties.append(lambda: self._take_address(links))
        for duty in duties:
            self._try(duty)

    def _try(self, duty: Callable[[], None]) -> None:
        if error := self._attempt(duty):
            log.warning("%s", error)

    def _watch_health(self, links: Links) -> None:
        """Ask for a replacement when this machine stays broken."""
        now = self._world.monotonic()
        if now < self._next_health:
            return
        self._next_health = now + HEALTH_S
        found = self._health.defect()
        if found != self._finding and found is not None:
            log.warning("check failed: %s", found.what)
        self._finding = found
        self._defects = self._defects + 1 if found is not None and found.defect else 0
        if found is not None and self._defects >= DEFECTS:
            links.leaving.replace_me(found.what)

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
        self._links = link(self._config, self._world, identity=identity, clients=clients)
        return self._links

    def _look_ahead(self) -> Outlook:
        """What the metadata service says; while it says nothing, what it said last."""
        try:
            return self._world.outlook()
        except MetadataError as error:
            log.debug("%s", error)
            return self._outlook

    def _publish(self, links: Links) -> None:
        """Write our own record when it says something new."""
        self._doing = "host-key"
        record = self._record.read(links, away=self._outlook.leaving)
        if self._record.is_due(record, self._membership):
            self._doing = "table"
            self._record.publish(links, record)
            self._phases.done("record")

    def _look(self, links: Links) -> Membership:
        """The membership: on the master from AWS, on the others from the table."""
        self._doing = "table"
        if links.coordinator is None:
            return links.follower.read(self._membership)
        now = self._world.monotonic()
        # A master that only might go has no more hurry than others, once they have heard of it.
        urgent = self._outlook.ending or (self._outlook.leaving and self._membership.lists(links.identity.instance_id))
        if now < self._next_look and not urgent:
            return self._membership
        stored = links.table.read_stored()
        self._doing = "groups"
        found = links.coordinator.reconcile(stored)
        self._next_look = now + self._pace.interval(links.coordinator.arriving, now=now)
        return found

    def _write_files(self, member: Member) -> None:
        self._doing = "files"
        root = self._world.root
        files = NodeFiles(
            root,
            user_name=self._config.default_user,
            bucket=self._config.bucket,
            actions=self._world.actions,
            own_name=socket.gethostname() if self._config.engines else None,
        )
        changed = files.write(self._membership, member=member, gpu_count=self._gpus.count())
        if changed:
            log.info("generation %d: wrote %s", self._membership.generation, ", ".join(changed))
        self._phases.done("files")

    def _hopeless(self, error: Delay | None) -> bool:
        now = self._world.monotonic()
        # A node that has only its signal left to send is not a failed one.
        deadline = self._start + self._config.bootstrap_timeout_s
        late = (now >= deadline and self._doing != "stack") or isinstance(error, (ConfigError, EnginesError))
        return late and not self.ready and now >= self._next_give_up

    def _give_up(self) -> None:
        """Say why this node is not ready; the agent goes on trying all the same.

        A deploy that cannot do without it hears of it. Otherwise the group replaces a node that is
        broken itself; one that only waits for others is as good as the next.
        """
        self._next_give_up = self._world.monotonic() + LONGEST_S
        why = self._trouble or self._waiting()
        links = self._links
        if links is None:
            log.warning("not a node in time: %s", why)
            return
        self._world.shipper.ship()  # the stack takes the node away when it has its word
        error = self._attempt(lambda: self._tell(links, why))
        if error is not None:
            log.warning("cannot report the failure %s: %s", why, error)

    def _tell(self, links: Links, why: str) -> None:
        """In this order, so that an agent that is killed in between says it again."""
        if self._config.fails_deploy and links.signals.failure(why):
            return
        if self._is_broken():
            links.leaving.replace_me(why)
        links.signals.settle(why)

    def _is_broken(self) -> bool:
        """Whether the trouble is this machine's own."""
        if self._error is not None:
            return is_own(self._error)
        return self._finding is not None and self._finding.defect

    def _waiting(self) -> str:
        if self._finding is not None:
            return self._finding.what
        if self._membership.generation == 0:
            return "bad-record" if self._links is not None and self._links.follower.flaw else "no-membership"
        if self._membership.has(self._config.min_nodes) and self._engines.waiting:
            return self._engines.waiting
        return f"peers {len(self._membership.present)}/{self._membership.expected} joined"

    def _note(self, error: Delay | None) -> None:
        """Log a trouble when it comes and when it goes, not once a pass."""
        self._error = error
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
        turn_in = 0.0 if self._links is None else self._links.follower.turn_in
        if turn_in > 0 and not self._failed_passes:
            return min(STEADY_S, max(BOOTSTRAP_S, turn_in))
        if self._outlook.ending:
            return BOOTSTRAP_S
        if self._failed_passes:
            return min(LONGEST_S, BOOTSTRAP_S * 2.0 ** min(self._failed_passes - 1, 8))
        now = self._world.monotonic()
        if self._outlook.leaving or (not self.ready and now - self._start < EAGER_FOR_S):
            return BOOTSTRAP_S
        return min(STEADY_S, max(EAGER_S, self._next_look - now)) if self._next_look else STEADY_S
