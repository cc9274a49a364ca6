"""Take a snapshot of a cluster: AWS's view, and the master's view of nodes and jobs, over one kept connection."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from cli.aws.clients import aws_errors
from cli.cluster_context import ClusterContext
from cli.errors import ClusterError, UsageError
from cli.jobs.records import ENDED, Job, read_jobs, utc_now
from cli.output import printable
from cli.reports.status import Status
from cli.reports.status_reader import read_status
from cli.ssh.master import ssh_target
from cli.ssh.master_connection import MasterConnection, open_connection
from cli.watch.node_checks import NodeCheck, check_nodes

COLUMNS: Final = ("INDEX", "NODE", "INSTANCE", "TYPE", "STATE", "AGENT", "SSHD")
GPU_COLUMN: Final = "GPUS"
JOBS_TIMEOUT_S: Final = 30
"""Timeout in seconds for the launcher's list of jobs, after which the connection counts as lost."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """State of a cluster at one moment; `error` is the reason if the master did not answer."""

    status: Status
    reasons: Sequence[str]
    checks: Mapping[int, NodeCheck] = field(default_factory=dict)
    jobs: Sequence[Job] = ()
    """Jobs that have not ended."""
    error: str = ""

    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Return columns and rows; GPUs have a column if any node has some."""
        with_gpus = any(check.gpus for check in self.checks.values())
        columns = (*COLUMNS, GPU_COLUMN) if with_gpus else COLUMNS
        rows = []
        for (index, node, instance, kind, *_, state), member in zip(
            self.status.rows(), self.status.membership.members, strict=True
        ):
            check = self.checks.get(member.node_index)
            cells = check.cells if check else ("", "", "")
            rows.append((index, node, instance, kind, state, *cells)[: len(columns)])
        return columns, rows

    def lines(self) -> list[str]:
        """Return the lines below the table."""
        now = utc_now()
        jobs = [_job_line(job, now) for job in self.jobs]
        if not (jobs or self.error):
            jobs = ["no job runs"]
        costs, missing = self.status.pause_and_cost_lines(now), self.status.missing_lines(self.reasons)
        error = [f"nodes and jobs are not known: {self.error}"] if self.error else []
        return [printable(line) for line in (*jobs, *costs, *missing, *error)]

    def to_dict(self) -> dict[str, Any]:
        """Return the snapshot as a JSON object: the status, extended by the nodes' answers, and the jobs."""
        status = self.status.to_dict(self.reasons, utc_now())
        for node in status["nodes"]:
            check = self.checks.get(node["index"])
            node.update(check.to_dict() if check else {"agent": None, "sshd": None, "gpus": []})
        return {**status, "jobs": [job.to_dict() for job in self.jobs], "error": self.error or None}


def _job_line(job: Job, now: datetime) -> str:
    row = job.row(now)
    nodes = "1 node" if row.nodes == "1" else f"{row.nodes} nodes"
    return f"job {row.id} {row.state} ({row.duration}) on {nodes}: {row.command}"


class Watcher:
    """Source of snapshots; keeps the connection to the master until it is lost or the master has changed."""

    def __init__(self) -> None:
        self._connection: MasterConnection | None = None
        self._master = ""
        self._open = ExitStack()

    def take_snapshot(self, context: ClusterContext) -> Snapshot:
        """Return a snapshot, with the reason if the master does not answer. Raises ClusterError if AWS does not."""
        status, reasons = read_status(context)
        try:
            connection = self._connect(context)
            checks = check_nodes(connection, [member.node_index for member in context.membership.members])
            running = [job for job in read_jobs(connection, timeout_s=JOBS_TIMEOUT_S) if job.state not in ENDED]
        except UsageError:
            raise
        except ClusterError as error:
            self.close()
            return Snapshot(status=status, reasons=reasons, error=str(error))
        return Snapshot(status=status, reasons=reasons, checks=checks, jobs=running)

    def close(self) -> None:
        """Log out."""
        self._open.close()
        self._connection = None

    def _connect(self, context: ClusterContext) -> MasterConnection:
        master = context.master.instance_id
        if self._connection is None or master != self._master:
            self.close()
            with aws_errors(context.clients.region):
                self._connection = self._open.enter_context(open_connection(ssh_target(context)))
            self._master = master
        return self._connection
