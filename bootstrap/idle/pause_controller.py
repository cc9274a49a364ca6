"""Pause an idle cluster: the master decides and writes the pause record, every node reads and announces it."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from bootstrap.atomic_file import write_file
from bootstrap.cluster.discovery import Group
from bootstrap.cluster.membership import Membership
from bootstrap.cluster.record_validation import RecordError
from bootstrap.cluster.table import Table
from bootstrap.config import NodeConfig
from bootstrap.contract import CAPACITY_BLOCK_PAUSES_TAG, EXPIRES_TAG, IDLE_STOP_TAG, PAUSE_ID, PAUSE_NOTICES_FILE
from bootstrap.failures import RETRYABLE_ERRORS
from bootstrap.files.paths import under_root
from bootstrap.idle.detector import IdleDetector, Verdict
from bootstrap.idle.load import Load
from bootstrap.idle.notice import Notices
from bootstrap.idle.pause_record import PauseRecord, parse_pause, parse_seconds, parse_time, render_pause
from bootstrap.idle.report import IdleReporter
from bootstrap.jobs.checkpoints_at_risk import find_jobs_at_risk

if TYPE_CHECKING:
    from bootstrap.dependencies import AgentDependencies, ClusterSession

log = logging.getLogger(__name__)

READ_S: Final = 60.0
"""Seconds between a worker's reads of the record; a fifth of the shortest announcement, to keep reads rare."""


class PauseController:
    """The agent's part in pausing its cluster; ``step`` runs once per pass."""

    def __init__(
        self,
        *,
        cluster_name: str,
        reporter: IdleReporter,
        notices: Notices,
        detector: IdleDetector,
        monotonic: Callable[[], float],
        utc_now: Callable[[], datetime],
    ) -> None:
        self.reporter = reporter
        """Reports this node's activity, for its own record."""
        self._cluster_name = cluster_name
        self._notices = notices
        self._detector = detector
        self._monotonic = monotonic
        self._utc_now = utc_now
        self._record = PauseRecord()
        self._has_read_stored_record = False
        self._stored: PauseRecord | None = None
        self._next_read = 0.0
        self._utc_by_monotonic: dict[float, datetime] = {}

    def step(self, session: "ClusterSession", membership: Membership) -> None:
        """Write or read the record, announce the pauses in it, and pause the cluster when due."""
        is_due = False
        if session.coordinator is None:
            self._read(session.table)
        elif session.coordinator.groups:
            is_due = self._decide_and_write(
                session.table, membership, groups=session.coordinator.groups, reports=session.coordinator.idle_reports
            )
        self.reporter.set_enabled(self._record.idle_stop_s > 0)
        self._notices.follow(self._record, now=self._utc_now())
        self.reporter.observe()
        if is_due:
            log.warning("pausing the cluster: idle since %s", self._record.idle_since)
            session.own_group.pause_cluster(self._cluster_name)

    def _read(self, table: Table) -> None:
        """Read the record on a worker."""
        now = self._monotonic()
        if now >= self._next_read:
            self._next_read = now + READ_S
            item = table.read_record(PAUSE_ID, consistent=False)
            self._record = parse_pause(item) if item else PauseRecord()

    def _decide_and_write(
        self, table: Table, membership: Membership, *, groups: Sequence[Group], reports: Mapping[str, str]
    ) -> bool:
        """Write the record that the groups' tags and the nodes' reports imply; return True if the pause is due."""
        now = self._monotonic()
        tags = {name: value for group in groups for name, value in group.tags.items()}
        # A node that is in standby or protected from scale-in outlives a pause.
        is_paused = not any(group.desired_capacity for group in groups)
        idle_stop_s = 0 if is_paused else parse_seconds(tags.get(IDLE_STOP_TAG, "0"))
        active_ids = frozenset[str]().union(*(group.active_ids for group in groups))
        members = {member.instance_id for member in membership.members}
        self._detector.observe(reports, instances=active_ids, now=now)
        verdict = self._detector.decide(idle_stop_s=idle_stop_s, members=members, now=now)
        self._record = replace(
            self._to_record(verdict, idle_stop_s=idle_stop_s, now=now),
            expires=_tagged_time(tags, EXPIRES_TAG),
            block_pauses=_tagged_time(tags, CAPACITY_BLOCK_PAUSES_TAG),
        )
        self._write(table)
        return verdict.is_due

    def _to_record(self, verdict: Verdict, *, idle_stop_s: int, now: float) -> PauseRecord:
        # Convert each monotonic time to UTC only once, so that jitter of the clocks does not rewrite the record.
        moments = [moment for moment in (verdict.idle_since, verdict.pauses_at) if moment is not None]
        known, utc = self._utc_by_monotonic, self._utc_now().replace(microsecond=0)
        self._utc_by_monotonic = {
            moment: known.get(moment) or utc + timedelta(seconds=round(moment - now)) for moment in moments
        }
        return PauseRecord(
            idle_stop_s=idle_stop_s,
            idle_since=None if verdict.idle_since is None else self._utc_by_monotonic[verdict.idle_since],
            pauses_at=None if verdict.pauses_at is None else self._utc_by_monotonic[verdict.pauses_at],
            silent=verdict.silent if idle_stop_s else (),
        )

    def _write(self, table: Table) -> None:
        """Write the record if it differs from the table's; if that fails, withdraw the announcement."""
        try:
            if not self._has_read_stored_record:
                self._stored, self._has_read_stored_record = _read_stored_record(table), True
            if self._record != self._stored:
                table.write_record(PAUSE_ID, render_pause(self._record))
                if silent := set(self._record.silent) - set(self._stored.silent if self._stored else ()):
                    log.warning("unhealthy: no report from %s", ", ".join(sorted(silent)))
                self._stored = self._record
        except RETRYABLE_ERRORS:
            self._detector.withdraw()
            raise


def _tagged_time(tags: Mapping[str, str], name: str) -> datetime | None:
    return parse_time(tags[name]) if tags.get(name) else None


def _read_stored_record(table: Table) -> PauseRecord | None:
    """Return the table's record; None if it is missing or must be replaced because it is bad."""
    item = table.read_record(PAUSE_ID, consistent=False)
    try:
        return parse_pause(item) if item else None
    except RecordError:
        return None


def create_pause_controller(config: NodeConfig, dependencies: "AgentDependencies") -> PauseController:
    """Build the controller of one node."""
    load = Load(
        root=dependencies.root,
        user=config.default_user,
        gpu_percent=dependencies.gpu_percent,
        monotonic=dependencies.monotonic,
    )
    return PauseController(
        cluster_name=config.cluster_name,
        reporter=IdleReporter(
            load.busy_with,
            monotonic=dependencies.monotonic,
            sequence_number=lambda: int(dependencies.utc_now().timestamp()),
        ),
        notices=Notices(
            dependencies.broadcast_to_terminals,
            find_jobs_at_risk=lambda: find_jobs_at_risk(dependencies.root, config.default_user),
            write=lambda text: write_file(under_root(dependencies.root, PAUSE_NOTICES_FILE), text),
        ),
        detector=IdleDetector(arrival_s=config.bootstrap_timeout_s),
        monotonic=dependencies.monotonic,
        utc_now=dependencies.utc_now,
    )
