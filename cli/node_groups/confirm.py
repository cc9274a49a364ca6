"""Ask before nodes end or start, naming the jobs that would end with them."""

import sys
from typing import Final

import click

from cli.cluster_context import look_up_context
from cli.errors import ClusterError, UsageError
from cli.jobs.records import ENDED, WAITING, Job, read_jobs
from cli.output import printable
from cli.shared_options import Selection
from cli.ssh.master import ssh_target
from cli.ssh.master_connection import open_connection

MAX_NAMED: Final = 5
"""Largest number of jobs to name; the others are counted."""


def confirm(question: str, *, yes: bool, action: str) -> None:
    """Ask on standard error; on no, end the program. Without a terminal, ``--yes`` is required. Raises UsageError.

    With ``--yes`` print what begins, and on which cluster: the region may have several.
    """
    if yes:
        print(f"dlcluster: {action}", file=sys.stderr)
        return
    if not sys.stdin.isatty():
        raise UsageError("cannot prompt without a terminal: use --yes")
    click.confirm(question, abort=True, err=True)


def warn_about_jobs_that_would_stop(selection: Selection) -> None:
    """Name, on standard error, the running jobs and what they lose; report it if the master cannot be reached."""
    try:
        with open_connection(ssh_target(look_up_context(selection))) as connection:
            running = [job for job in read_jobs(connection) if job.state not in ENDED]
    except ClusterError as error:
        print(f"dlcluster: cannot determine which jobs run: {printable(str(error))}", file=sys.stderr)
        return
    for job in running[:MAX_NAMED]:
        print(f"dlcluster: job {printable(job.id)} {_effect_on_job(job)}: {printable(job.line)}", file=sys.stderr)
    if len(running) > MAX_NAMED:
        print(f"dlcluster: {len(running) - MAX_NAMED} more jobs run and would end", file=sys.stderr)


def _effect_on_job(job: Job) -> str:
    """Describe what happens to an open job whose nodes end."""
    verb = "waits" if job.state == WAITING else "runs"
    if job.local_checkpoints:
        loses = ", and its checkpoints are on the nodes' disks alone"
    elif job.unknown_checkpoints:
        loses = ", and it is unknown whether its checkpoints are in S3 or the shared directory"
    else:
        loses = ""
    return f"{verb} and would {'be interrupted until nodes are back' if job.durable else 'end'}{loses}"
