"""Run the agent: make the instance a node, signal CloudFormation, and keep the node in the cluster.

Each pass compares the actual state with the desired one, so no event can be missed. A failure of AWS, the network or
the disk only delays the node until a later pass. `bootstrap.agent_service` calls `Agent.run_pass` in a loop.
"""

import logging
from collections.abc import Callable
from typing import Final

from bootstrap.cluster.membership import NO_MEMBERSHIP, Member, Membership
from bootstrap.cluster.node_record_writer import NodeRecordWriter
from bootstrap.cluster.poll_interval import FAST_RECONCILE_INTERVAL_S, PollInterval
from bootstrap.cluster.termination_notice import NO_NOTICE
from bootstrap.config import NodeConfig
from bootstrap.dependencies import (
    AgentDependencies,
    ClusterSession,
    build_own_record,
    create_cluster_session,
    create_health_checks,
)
from bootstrap.errors import ConfigError, MetadataError, MxnetEnvironmentError
from bootstrap.failures import FailureTracker, Step, attempt, replacement_would_help
from bootstrap.files.node_files import create_node_file_writer
from bootstrap.health.checks import FAILURES_BEFORE_REPLACEMENT, HEALTH_CHECK_INTERVAL_S, HealthCheckFailure
from bootstrap.health.gpus import GpuCounter
from bootstrap.idle.pause_controller import create_pause_controller
from bootstrap.mxnet_environment.progress import MxnetEnvironmentMonitor
from bootstrap.phases import Phases, ensure_first_start_time
from bootstrap.setup.progress import SetupProgress, read_progress
from bootstrap.shared_storage.state import SharedStorage

log = logging.getLogger(__name__)

FAST_PASS_INTERVAL_S: Final = 1.0
"""Seconds between passes while the node is not ready yet or is draining."""
FAST_PASS_WINDOW_S: Final = 300.0
"""Seconds of frequent passes after the start; a node not ready by then is waiting for something slow."""
PASS_INTERVAL_S: Final = 6.0
"""Seconds between passes of a ready node. Must stay below termination_notice.MEMBERSHIP_PROPAGATION_S, so that
every node learns that another is draining before that one is terminated."""
MAX_BACKOFF_S: Final = 15.0
"""Longest pause between failing passes, and between reports of a failure, in seconds."""


class Agent:
    """The agent of one node; ``run_pass`` makes one pass."""

    def __init__(self, config: NodeConfig, dependencies: AgentDependencies) -> None:
        self._config = config
        self._dependencies = dependencies
        root, monotonic = dependencies.root, dependencies.monotonic
        self._phases = Phases(monotonic=monotonic)
        self._started_at = ensure_first_start_time(root, now=monotonic())
        self._session: ClusterSession | None = None
        self._gpus = GpuCounter(
            root, expected=config.gpu_count, nvidia_smi=dependencies.nvidia_smi, monotonic=monotonic
        )
        self._health = create_health_checks(config, dependencies, gpus=self._gpus)
        self._poll_interval = PollInterval()
        self._notice = NO_NOTICE
        self._public_address: str | None = None
        self._pauses = create_pause_controller(config, dependencies)
        self._record_writer = NodeRecordWriter(report=self._pauses.reporter, monotonic=monotonic)
        self._membership: Membership = NO_MEMBERSHIP
        self._has_read_membership = False
        self._next_reconcile = self._next_report = self._next_health = 0.0
        self._failed_checks = 0
        self._check_failure: HealthCheckFailure | None = None
        self._mxnet_environment = MxnetEnvironmentMonitor(root, name=config.mxnet_environment)
        self._shared_storage = SharedStorage(root, wanted=config.shared_storage, monotonic=monotonic)
        self._failures = FailureTracker()

    @property
    def is_signal_settled(self) -> bool:
        """Return True if nothing is left to signal: the node was ready or failed, or the stack no longer waits."""
        return self._session is not None and self._session.stack_signal.is_settled

    def run_pass(self) -> float:
        """Make one pass; return the seconds until the next."""
        self._failures.run(self._converge)
        if self._should_report_failure():
            self._report_not_ready()
        if self._session is not None:
            self._run_side_tasks(self._session)
        self._dependencies.shipper.ship()
        return self._delay() * self._dependencies.jitter()

    def _converge(self) -> None:
        """Bring the record, the membership and the files up to date; signal once the node is ready."""
        session = self._connect()
        self._read_metadata()
        if self._notice.is_terminating:
            _attempt_and_log(session.termination.send_lifecycle_heartbeat)  # The rest of the pass may take a while.
        self._publish_record(session)
        self._membership = self._refresh_membership(session)
        self._has_read_membership = True
        member = self._membership.member(session.identity.instance_id)
        if member is not None:
            self._phases.log_end("membership")
            with self._failures.step(Step.FILES):
                self._write_files(session, member)
            self._phases.log_end("files")
        may_be_ready = member is not None and not member.draining and not self._notice.must_drain
        if may_be_ready and self._read_setup_progress().is_done and not session.stack_signal.is_settled:
            self._signal_if_ready(session)

    def _connect(self) -> ClusterSession:
        """Read the instance's identity and open the AWS clients, once."""
        if self._session is not None:
            return self._session
        with self._failures.step(Step.METADATA):
            identity = self._dependencies.identify()
        self._phases.log_end("identity")
        with self._failures.step(Step.CREDENTIALS):
            clients = self._dependencies.connect(self._config.region)
            self._phases.log_end("credentials")
            self._dependencies.shipper.connect(clients.logs, group=self._config.log_group, stream=identity.instance_id)
            self._session = create_cluster_session(self._config, self._dependencies, identity=identity, clients=clients)
        return self._session

    def _read_metadata(self) -> None:
        """Read the termination notice and the public address; keep the last ones if the metadata service fails."""
        try:
            metadata = self._dependencies.read_metadata()
            self._notice, self._public_address = metadata.notice, metadata.public_address
        except MetadataError as error:
            log.debug("%s", error)

    def _publish_record(self, session: ClusterSession) -> None:
        """Write this node's record if it changed, but not before the setup has ended: jobs run on every member."""
        instance_id = session.identity.instance_id
        member = self._membership.member(instance_id)
        setup = self._read_setup_progress()
        if setup.is_running and member is None:
            return
        # While the setup of a later deploy runs, a member keeps its last outcome, so that it stays in the cluster.
        outcome = setup.outcome or (member.setup if member is not None else "")
        with self._failures.step(Step.HOST_KEY):
            draining, mount = self._notice.must_drain, self._shared_storage.mount_state()
            record = build_own_record(
                self._config, self._dependencies, instance_id=instance_id, draining=draining, mount=mount, setup=outcome
            )
            is_due = self._record_writer.is_due(record, self._membership)
        if is_due:
            with self._failures.step(Step.TABLE):
                self._record_writer.publish(session.table, record)
            self._phases.log_end("record")

    def _read_setup_progress(self) -> SetupProgress:
        return read_progress(self._dependencies.root, sha256=self._config.setup_sha256)

    def _refresh_membership(self, session: ClusterSession) -> Membership:
        """Return the current membership: the master reconciles it with AWS and writes it; a worker reads it."""
        if session.coordinator is None:
            with self._failures.step(Step.TABLE):
                return session.follower.read(self._membership)
        now = self._dependencies.monotonic()
        if now < self._next_reconcile and not session.termination.must_reconcile_now(self._notice, self._membership):
            return self._membership
        with self._failures.step(Step.TABLE):
            stored = session.table.read_stored()
        with self._failures.step(Step.GROUPS):
            membership = session.coordinator.reconcile(stored)
        self._next_reconcile = now + self._poll_interval.interval(session.coordinator.arriving, now=now)
        return membership

    def _write_files(self, session: ClusterSession, member: Member) -> None:
        self._shared_storage.follow(self._membership.shared_storage)
        arriving = 0 if session.coordinator is None else len(session.coordinator.arriving)
        changed = create_node_file_writer(self._config, self._dependencies, arriving=arriving).write(
            self._membership, member=member, gpu_count=self._gpus_per_training_node()
        )
        if changed:
            log.info("generation %d: wrote %s", self._membership.generation, ", ".join(changed))

    def _gpus_per_training_node(self) -> int:
        """Return the GPUs of a node that trains: this one, or a worker if the master does not."""
        return self._gpus.count_or_zero() if self._config.trains else self._config.worker_gpu_count or 0

    def _signal_if_ready(self, session: ClusterSession) -> None:
        """Signal success once the MXNet environment is ready, enough peers are present and the health checks pass."""
        with self._failures.step(Step.ADDRESS):
            self._associate_elastic_ip(session)
        with self._failures.step(Step.MXNET_ENVIRONMENT):
            is_mxnet_ready = self._mxnet_environment.check()
        if not self._membership.has_at_least(self._config.min_nodes):
            return
        self._phases.log_end("peers")
        if not is_mxnet_ready:
            return
        self._phases.log_end("mxnet-environment")
        with self._failures.step(Step.CHECKS):
            self._check_failure = self._health.check_before_ready(self._membership.active_members)
        if self._check_failure is None:
            with self._failures.step(Step.SIGNAL):
                session.stack_signal.send_success()
            self._phases.log_end("signal")

    def _associate_elastic_ip(self, session: ClusterSession) -> None:
        if session.elastic_ip is not None:
            session.elastic_ip.associate(self._public_address)

    def _run_side_tasks(self, session: ClusterSession) -> None:
        """Drain, check the health, keep the Elastic IP and handle pauses, even after a failed pass."""
        tasks: list[Callable[[], None]] = []
        if self._notice.must_drain:
            membership = self._membership if self._has_read_membership else None
            tasks.append(lambda: session.termination.respond(self._notice, membership))
        elif session.stack_signal.is_settled:
            tasks.append(lambda: self._watch_health(session))
            # Users log in to a master whose setup has failed, although the workers file omits it.
            member = self._membership.member(session.identity.instance_id)
            if member is not None and (not member.draining or member.has_failed_setup):
                tasks.append(lambda: self._associate_elastic_ip(session))
        for task in (*tasks, lambda: self._pauses.step(session, self._membership)):
            _attempt_and_log(task)

    def _watch_health(self, session: ClusterSession) -> None:
        """Check the machine's health; request a replacement after FAILURES_BEFORE_REPLACEMENT consecutive failures."""
        now = self._dependencies.monotonic()
        if now < self._next_health:
            return
        self._next_health = now + HEALTH_CHECK_INTERVAL_S
        failure = self._health.check_machine()
        if failure != self._check_failure and failure is not None:
            log.warning("check failed: %s", failure.reason)
        self._check_failure = failure
        self._failed_checks = self._failed_checks + 1 if failure is not None and failure.needs_replacement else 0
        if failure is not None and self._failed_checks >= FAILURES_BEFORE_REPLACEMENT:
            session.own_group.request_replacement(failure.reason)

    def _should_report_failure(self) -> bool:
        now = self._dependencies.monotonic()
        # A node whose only remaining task is its signal has not failed.
        deadline = self._started_at + self._config.bootstrap_timeout_s
        is_overdue = now >= deadline and self._failures.failed_step is not Step.SIGNAL
        fails_at_once = isinstance(self._failures.error, (ConfigError, MxnetEnvironmentError))
        has_failed = is_overdue or self._read_setup_progress().failure or fails_at_once
        return bool(has_failed) and not self.is_signal_settled and now >= self._next_report

    def _report_not_ready(self) -> None:
        """Report why this node is not ready, and keep trying.

        The stack gets a failure signal if the deploy needs this node. Otherwise, the group replaces the node if its own
        machine is broken. A node that waits for peers is not replaced, because a new instance would wait too.
        """
        self._next_report = self._dependencies.monotonic() + MAX_BACKOFF_S
        reason = self._failures.reason or self._what_is_missing()
        if (session := self._session) is None:
            log.warning("node is not ready: %s", reason)
            return
        self._dependencies.shipper.ship()  # CloudFormation terminates the node once it has the signal
        if error := attempt(lambda: self._report_failure(session, reason)):
            log.warning("cannot report the failure %s: %s", reason, error)

    def _report_failure(self, session: ClusterSession, reason: str) -> None:
        """Send the report before recording it, so that an agent killed in between reports again."""
        if self._config.fails_deploy and session.stack_signal.send_failure(reason):
            return
        if self._is_broken():
            session.own_group.request_replacement(reason)
        session.stack_signal.mark_settled(reason)  # No signal was sent: the stack needs none from this node.

    def _is_broken(self) -> bool:
        if self._failures.error is not None:
            return replacement_would_help(self._failures.error)
        return self._check_failure is not None and self._check_failure.needs_replacement

    def _what_is_missing(self) -> str:
        if self._check_failure is not None:
            return self._check_failure.reason
        if not (setup := self._read_setup_progress()).is_done:
            return f"setup: {setup.failure or 'running'}"
        if self._membership.generation == 0:
            return "bad-record" if self._session is not None and self._session.follower.error else "no-membership"
        if self._membership.has_at_least(self._config.min_nodes) and self._mxnet_environment.waiting:
            return self._mxnet_environment.waiting
        return f"peers {len(self._membership.active_members)}/{self._membership.desired_nodes} joined"

    def _delay(self) -> float:
        until_read = 0.0 if self._session is None else self._session.follower.seconds_until_read
        if until_read > 0 and not self._failures.failed_passes:
            return min(PASS_INTERVAL_S, max(FAST_PASS_INTERVAL_S, until_read))
        if self._notice.is_terminating:
            return FAST_PASS_INTERVAL_S
        if self._failures.failed_passes:
            return min(MAX_BACKOFF_S, FAST_PASS_INTERVAL_S * 2.0 ** min(self._failures.failed_passes - 1, 8))
        now = self._dependencies.monotonic()
        if self._notice.must_drain or (not self.is_signal_settled and now - self._started_at < FAST_PASS_WINDOW_S):
            return FAST_PASS_INTERVAL_S
        if not self._next_reconcile:
            return PASS_INTERVAL_S
        return min(PASS_INTERVAL_S, max(FAST_RECONCILE_INTERVAL_S, self._next_reconcile - now))


def _attempt_and_log(task: Callable[[], None]) -> None:
    if error := attempt(task):
        log.warning("%s", error)
