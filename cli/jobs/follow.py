"""Show a job's output until it ends; on Ctrl-C, ask once whether to keep it running."""

import sys
import tempfile
from typing import Final

import click

from cli.errors import EXIT_FAILED, EXIT_INTERRUPTED, ClusterError
from cli.jobs.advice import log_command, with_dlcluster_commands
from cli.jobs.records import Job, read_job, run_launcher_command
from cli.output import printable
from cli.shared_options import invocation
from cli.ssh.master_connection import MasterConnection, kill_on_disconnect

MAX_EXIT_CODE: Final = 255


def show_logs(connection: MasterConnection, args: list[str]) -> int:
    """Forward the output of ``launch logs``; return its exit code.

    Its errors are printed at its end, as dlcluster's own.
    """
    line = kill_on_disconnect(["launch", "logs", *args])
    with tempfile.TemporaryFile() as errors:
        try:
            return connection.stream(line, stdout_fd=sys.stdout.fileno(), stderr_fd=errors.fileno())
        finally:
            errors.seek(0)
            for text in errors.read().decode(errors="replace").splitlines():
                _print_note(with_dlcluster_commands(text.removeprefix("launch: ").removeprefix("error: ")))


def follow_to_end(connection: MasterConnection, job_id: str) -> int:
    """Show a job's output from its beginning; return the job's exit code."""
    try:
        show_logs(connection, ["-f", job_id])
        job = read_job(connection, job_id)
    except ClusterError as error:
        raise ClusterError(f"{error}; job {job_id} keeps running: {invocation()} logs -f {job_id}") from error
    except KeyboardInterrupt:
        _leave_or_stop(connection, job_id)
        return EXIT_INTERRUPTED
    print_end(job)
    return exit_code(job)


def exit_code(job: Job) -> int:
    """Return dlcluster's exit code for a job that has ended."""
    if job.state == "SUCCEEDED":
        return 0
    # A shell sees only the lowest eight bits: 256 would mean success.
    return min(max(job.exit_code or EXIT_FAILED, EXIT_FAILED), MAX_EXIT_CODE)


def print_end(job: Job) -> None:
    """Print the job's state, and why it failed."""
    reason = f": {with_dlcluster_commands(job.reason)}" if job.reason and job.state != "SUCCEEDED" else ""
    _print_note(f"job {job.id} {job.state}{reason}")
    if job.state == "FAILED" and (line := log_command(job)) is not None:
        _print_note(f"all output of that rank: {line}")


def _leave_or_stop(connection: MasterConnection, job_id: str) -> None:
    """Ask on a terminal; without one, stop the job, because an interrupted script must leave nothing running."""
    if sys.stdin.isatty() and _confirm_keep_running(job_id):
        _print_note(f"job {job_id} keeps running: {invocation()} logs -f {job_id}, {invocation()} stop {job_id}")
        return
    run_launcher_command(connection, "stop", job_id)
    _print_note(f"job {job_id} is stopped")


def _confirm_keep_running(job_id: str) -> bool:
    try:
        return click.confirm(f"\nleave job {job_id} running (Enter or Ctrl-C: yes)?", default=True, err=True)
    except click.Abort:
        return True  # A second Ctrl-C ends dlcluster but not the job.


def _print_note(text: str) -> None:
    print(f"dlcluster: {printable(text)}", file=sys.stderr)
