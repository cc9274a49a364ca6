"""Give advice about a job in the laptop's commands: the launcher's own advice is for a shell on the master."""

import shlex
from collections.abc import Sequence
from typing import Final

from cli.jobs.records import Job
from cli.shared_options import invocation

FAILED: Final = "FAILED"
MAX_EXPLAINED: Final = 3
"""Number of latest jobs whose failures are explained below the table of all jobs."""
MAX_REASON: Final = 160
"""Largest number of characters of such an explanation."""
SAME_ON_LAPTOP: Final = {
    "launch python ": "{dlcluster} run -- python ",
    "launch --nproc-per-node 1 python ": "{dlcluster} run --nproc-per-node 1 -- python ",
    "did you mean launch list?": "did you mean {dlcluster} jobs?",
    "did you mean launch status?": "did you mean {dlcluster} jobs?",
    "did you mean launch logs?": "did you mean {dlcluster} logs?",
    "did you mean launch stop?": "did you mean {dlcluster} stop?",
    # Of the three ways out, pull is for results: it brings them to a directory outside of the project.
    "pull them into this directory, exclude them in .launchignore, or give --sync-overwrite": (
        "name them in .gitignore if jobs write them, or give --sync-overwrite"
    ),
}
"""Suggestions of the launcher (launcher.job.exit_hints, launcher.sync.sender), each with its laptop's counterpart."""


def with_dlcluster_commands(text: str) -> str:
    """Return a message of the launcher with dlcluster's commands in place of the suggested ones."""
    for suggestion, counterpart in SAME_ON_LAPTOP.items():
        text = text.replace(suggestion, counterpart.format(dlcluster=invocation()))
    return text


def failure_lines(jobs: Sequence[Job]) -> list[str]:
    """Return a line with the reason for each failed job among the latest if the last one failed, in their order."""
    if not jobs or jobs[-1].state != FAILED:
        return []
    failed = [job for job in jobs[-MAX_EXPLAINED:] if job.state == FAILED]
    return [f"{job.id} FAILED: {_short_reason(job)}" for job in failed]


def _short_reason(job: Job) -> str:
    unexplained = "no reason is recorded" if job.exit_code is None else f"exit code {job.exit_code}"
    reason = with_dlcluster_commands(job.reason) if job.reason else unexplained
    return reason if len(reason) <= MAX_REASON else f"{reason[: MAX_REASON - 3]}..."


def log_command(job: Job) -> str | None:
    """Return the command that shows the whole output of the rank that failed; None if no rank has."""
    return None if job.failed_rank is None else f"{invocation()} logs {shlex.quote(job.id)} --rank {job.failed_rank}"
