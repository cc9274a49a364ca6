"""Start a command on all nodes with the launcher on the master, or run the launcher itself there."""

import os
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from bootstrap.contract import FOLLOW_HINT, WAITING_HINT
from cli.cluster_context import look_up_context
from cli.errors import ClusterError, UsageError
from cli.files.progress import checkouts_note, summary, upload_bar
from cli.files.upload import Upload, upload
from cli.jobs.advice import with_dlcluster_commands
from cli.jobs.launch_options import OVERWRITE, LaunchOptions, typed_nnodes_option
from cli.jobs.records import ENDED, LAUNCHER_USAGE_ERROR, read_jobs
from cli.output import printable
from cli.shared_options import Selection, invocation
from cli.ssh.access import remote_command
from cli.ssh.master import ssh_target
from cli.ssh.master_connection import MasterConnection, kill_on_disconnect, last_line, run_command

LAUNCHER: Final = "launch"
JOB_ID: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,63}")
COPY_ONLY_OPTIONS: Final = ("--nproc-per-node", "1", "--env", "CUDA_VISIBLE_DEVICES:")
"""Options of a job with one process per node and no GPUs, which copies files even to nodes with busy GPUs."""


def run_on_master(selection: Selection, command: Sequence[str]) -> int:
    """Run a command line that begins with launch on the master, with the user's agent, as a shell there would."""
    target = ssh_target(look_up_context(selection))
    code = run_command(
        target, remote_command(tuple(command)), stdout_fd=sys.stdout.fileno(), stderr_fd=sys.stderr.fileno()
    )
    if code:
        print("dlcluster: launch ran in the master's home directory, and nothing was copied there", file=sys.stderr)
    return code


def start_job(
    connection: MasterConnection,
    command: Sequence[str],
    *,
    options: LaunchOptions,
    uploaded: Upload | None,
    log_follows: bool,
) -> str:
    """Start a detached job; return its id once its processes run. Raises ClusterError with the launcher's reason.

    With `log_follows`, what the job waits for is not printed: its log begins with it.
    """
    forwarded = options.forwarded_environment(os.environ)
    sync = [] if uploaded is None else ["--sync-dst-dir", uploaded.name]
    # End the start with the connection: after Ctrl-C the user would not know the id of a job that continues.
    line = _read_from_stdin_script(forwarded) + kill_on_disconnect(
        ["launch", "--detach", *sync, *options.to_args(), "--", *command]
    )
    try:
        done = connection.output(
            line if uploaded is None else f"cd && cd {shlex.quote(uploaded.copy)} && {{ {line}; }}",
            chunks=[f"{value}\n".encode(errors="surrogateescape") for value in forwarded.values()],
            keep_stdin_open=True,
        )
    except KeyboardInterrupt:
        print(f"dlcluster: the start was cancelled; {invocation()} jobs shows how it ended", file=sys.stderr)
        raise
    job_id = done.stdout.decode(errors="replace").strip()
    if done.exit_code:
        reason = last_line(done.stderr).removeprefix("launch: ") or f"exit code {done.exit_code}"
        error = UsageError if done.exit_code == LAUNCHER_USAGE_ERROR else ClusterError
        if reason.startswith("-n "):
            reason = f"{typed_nnodes_option()} {reason.removeprefix('-n ')}"
        raise error(f"the job did not start: {with_dlcluster_commands(reason)}")
    if not JOB_ID.fullmatch(job_id):
        raise ClusterError(f"the launcher on the master must return a job id, got {job_id[:80]!r}")
    for text in done.stderr.splitlines():
        if not text.startswith((FOLLOW_HINT, WAITING_HINT) if log_follows else FOLLOW_HINT):
            print(last_line(text), file=sys.stderr)
    return job_id


def upload_directory(connection: MasterConnection, *, to: str | None) -> Upload:
    """Upload the current directory to the master, with a progress bar. Raises ClusterError."""
    if line := checkouts_note(Path.cwd()):
        print(f"dlcluster: {line}", file=sys.stderr)
    uploaded = upload(connection, Path.cwd(), to=to, show=upload_bar)
    print(f"dlcluster: {summary(uploaded)}", file=sys.stderr)
    warn_about_shared_directory(connection, uploaded, starts_another=True)
    return uploaded


def _read_from_stdin_script(names: Iterable[str]) -> str:
    """Return shell code that reads variables from the command's input: a command line would show their values."""
    return "".join(f"IFS= read -r {name}; export {name}; " for name in names)


def warn_about_shared_directory(
    connection: MasterConnection, uploaded: Upload, *, starts_another: bool = False
) -> None:
    """Warn on stderr, in one line, of open jobs in the directory if their files have changed or another job starts."""
    if not (uploaded.sent_files or starts_another):
        return
    try:
        jobs = read_jobs(connection)
    except ClusterError:
        return  # the next step will also fail, or does not need the records
    open_jobs = ", ".join(
        printable(f"job {job.id} ({job.state})")
        for job in jobs
        if job.state not in ENDED and PurePosixPath(job.directory).name == uploaded.name
    )
    if open_jobs:
        changed = ", whose files have just changed," if uploaded.sent_files else ""
        shared = "; the new job may write the same files" if starts_another else ""
        print(f"dlcluster: ~/{uploaded.name}{changed} is the directory of {open_jobs}{shared}", file=sys.stderr)


def copy_to_all_nodes(connection: MasterConnection, uploaded: Upload, *, overwrites: bool = False) -> None:
    """Copy the directory uploaded to the master to every node. Raises ClusterError."""
    overwrite = [OVERWRITE] if overwrites else []
    line = shlex.join(["launch", "--sync-dst-dir", uploaded.name, *overwrite, *COPY_ONLY_OPTIONS, "true"])
    done = connection.output(f"cd && cd {shlex.quote(uploaded.copy)} && {line}")
    if done.exit_code:
        reason = last_line(done.stderr).removeprefix("launch: ") or f"exit code {done.exit_code}"
        raise ClusterError(f"cannot copy to every node: {with_dlcluster_commands(reason)}")
