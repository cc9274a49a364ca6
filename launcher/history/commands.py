"""Implement ``launch list``, ``status``, ``stop``, ``logs`` and ``close``."""

import argparse
import json
import os
import shlex
import signal
import sys
import time
from calendar import timegm
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NoReturn

from launcher.durable_state import mark_ended
from launcher.errors import LaunchError, UsageError
from launcher.history import job_lookup
from launcher.history import log_command as logs
from launcher.history.lock import is_alive, is_held, signal_launcher
from launcher.history.record_upload import UPLOADS_S, upload
from launcher.history.records import JobRecord, JobState, now, read_record, write_record
from launcher.subcommands import SUBCOMMANDS
from launcher.transport.pool.client import close_idle
from launcher.transport.protocol import AFTER_GRACE_S

KILL_TIMEOUT_S = 5.0
RECORD_TIMEOUT_S = 5.0
"""Seconds within which a launcher that holds its job's lock has written its record."""
POLL_S = 0.05
MAX_COMMAND = 60
COLUMNS = "{:23} {:9} {:20} {:>8} {:>5}  {:12} {}{}"
LABELS = {JobState.WAITING: "WAITING for nodes"}
"""Longer descriptions of states for `launch list`."""
BROKEN_PIPE = 128 + signal.SIGPIPE


class _Parser(argparse.ArgumentParser):
    """Parser that raises UsageError instead of exiting."""

    def error(self, message: str) -> NoReturn:
        usage = " ".join(self.format_usage().split()[1:])
        raise UsageError(f"{message}; usage: {usage}")


def main(arguments: Sequence[str], *, end_durable: Callable[[str], None] = mark_ended) -> int:
    """Run the subcommand that the first word names; `end_durable` closes a durable job."""
    name, *rest = arguments
    parser = _Parser(prog=f"launch {name}", allow_abbrev=False, description=SUBCOMMANDS[name])
    if name not in ("list", "close"):
        parser.add_argument(
            "job",
            nargs="?",
            metavar="JOB",
            help="job id, its name, or a unique prefix (default: the running job, else the latest)",
        )
    if name in ("list", "status"):
        parser.add_argument("--json", action="store_true", help="print the record as JSON")
    if name == "logs":
        logs.add_options(parser)
    parser.set_defaults(end_durable=end_durable)
    try:
        code = COMMANDS[name](parser.parse_args(rest))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader is gone, as in `launch list | head`; skip the interpreter's flush at exit.
        sys.stdout = None
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def list_jobs(options: argparse.Namespace) -> int:
    """Print one line per job, the latest last."""
    jobs = job_lookup.all_jobs()
    if options.json:
        print(json.dumps([json.loads(job.to_bytes()) for job in jobs], indent=2))
        return 0
    head, *names = _name_column(jobs)
    print(COLUMNS.format("JOB", "STATE", "START", "TIME", "NODES", "BY", head, "COMMAND"))
    for job, name in zip(jobs, names, strict=True):
        by = _printable(job.started_by or "-")
        print(
            COLUMNS.format(
                job.id, state_label(job), job.submitted_at, duration(job), len(job.hosts), by, name, _short(job)
            )
        )
        if job.waiting is not None:
            print(f"  waiting, {_printable(job.waiting)}")
    return 0


def _name_column(jobs: Sequence[JobRecord]) -> list[str]:
    """Return the cells of the column of names, its head first; all are empty if no job has a name."""
    if not any(job.name for job in jobs):
        return [""] * (len(jobs) + 1)
    cells = ["NAME", *(job.name or "-" for job in jobs)]
    width = max(map(len, cells))
    return [f"{cell:{width}}  " for cell in cells]


def state_label(job: JobRecord) -> str:
    """Return the state as `launch list` shows it, except what a queued job waits for, which is on a second line."""
    return job.state.value if job.waiting is not None else LABELS.get(job.state, job.state.value)


def show_status(options: argparse.Namespace) -> int:
    """Print a job's record."""
    job = job_lookup.find(options.job)
    if options.json:
        print(job.to_bytes().decode(), end="")
        return 0
    revision = job.revision
    dirty = " with changed files" if revision.dirty else ""
    fields = {
        "job": job.id,
        "name": job.name,
        "state": job.state.value,
        "waiting": job.waiting,
        "reason": job.reason,
        "exit code": job.exit_code,
        "command": _printable(shlex.join(job.command)),
        "directory": _printable(job.cwd),
        "revision": f"{revision.commit}{dirty}" if revision.commit else None,
        "folder": revision.digest,
        "hosts": ", ".join(job.hosts),
        "framework": job.framework,
        "user": job.user,
        "started by": _printable(job.started_by) if job.started_by else None,
        "machine": job.machine,
        "submitted": job.submitted_at,
        "end": job.end,
        "restarts": job.restarts,
        "attempt": job.attempt if job.durable else None,
    }
    for name, value in fields.items():
        if value is not None:
            print(f"{name:10} {value}")
    return 0


def stop(options: argparse.Namespace) -> int:
    """End a job on all its nodes: send its ranks TERM, and KILL after the grace period."""
    job = job_lookup.find_running(options.job)
    directory = job_lookup.directory_of(job.id)
    if job.state.is_terminal:
        raise UsageError(f"job {job.id} has already ended: {job.state.value}")
    if job.durable:
        options.end_durable(job.id)
    if job.state is JobState.WAITING and (job.waiting is None or not job.pid):
        # A launcher that has started since then checks for the mark after it has written its record.
        begun = _wait_for_record(job)
        if not is_alive(directory, job):
            return _cancel_suspended(job)
        job = begun or job
    if job.pid:
        signal_launcher(directory, job, signal.SIGTERM)
    # Allow more time than a launcher takes to end its job, even with an unresponsive node.
    ended = _wait_for_end(job, 2 * (job.grace_s + AFTER_GRACE_S))
    if not ended and _latest_record(job).state.is_terminal:
        # The launcher is uploading the record.
        ended = _wait_for_end(job, UPLOADS_S)
    if not ended:
        _kill(job)
    last = job_lookup.current(directory)
    print(f"{job.id} {last.state.value if last else 'gone'}")
    return 0


def _wait_for_record(job: JobRecord) -> JobRecord | None:
    """Wait for the record that a launcher may be about to write; None if none appears in time."""
    directory, until = job_lookup.directory_of(job.id), time.monotonic() + RECORD_TIMEOUT_S
    while is_held(directory) and time.monotonic() < until:
        record = read_record(directory)
        if record is not None and (record.attempt, record.pid) != (job.attempt, job.pid):
            return record
        time.sleep(POLL_S)
    return None


def _cancel_suspended(job: JobRecord) -> int:
    """Record the end of a durable job that no launcher is running."""
    directory = job_lookup.directory_of(job.id)
    ended = replace(
        job, state=JobState.CANCELLED, reason="stopped while it waited", waiting=None, queue_position=None, end=now()
    )
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_record(directory, ended)
    except OSError as error:
        raise LaunchError(f"job {job.id} is stopped, but its record cannot be written: {error.strerror}") from error
    if reason := upload(directory):
        print(f"launch: the job's record is not in the bucket: {reason}", file=sys.stderr)
    print(f"{job.id} {JobState.CANCELLED.value}")
    return 0


def close(_: argparse.Namespace) -> int:
    """Close the connections kept for the next launch, and print their number."""
    count = close_idle(os.environ)
    print(f"{count} connection{'s' if count != 1 else ''} closed")
    return 0


def _kill(job: JobRecord) -> None:
    """Kill a launcher that does not end; the nodes then end their processes."""
    directory = job_lookup.directory_of(job.id)
    signal_launcher(directory, job, signal.SIGKILL)
    if not _wait_for_end(job, KILL_TIMEOUT_S):
        raise LaunchError(f"job {job.id}: its launcher, process {job.pid}, cannot be killed")
    latest = _latest_record(job)
    if latest.state.is_terminal:
        return
    try:
        write_record(directory, replace(latest, state=JobState.CANCELLED, reason="killed by launch stop", end=now()))
    except OSError as error:
        raise LaunchError(f"job {job.id} is killed, but its record cannot be written: {error.strerror}") from error


def _latest_record(job: JobRecord) -> JobRecord:
    """Return the launcher's latest version of the record."""
    return read_record(job_lookup.directory_of(job.id)) or job


def _wait_for_end(job: JobRecord, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while is_held(job_lookup.directory_of(job.id)):
        if time.monotonic() >= until:
            return False
        time.sleep(POLL_S)
    return True


def duration(job: JobRecord) -> str:
    """Format the duration of a job, so far if it runs; empty if its end was not recorded."""
    if job.end is None and job.state.is_terminal:
        return "-"
    seconds = int((_seconds(job.end) if job.end else time.time()) - _seconds(job.submitted_at))
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _seconds(moment: str) -> float:
    return timegm(time.strptime(moment, "%Y-%m-%dT%H:%M:%SZ"))


def _short(job: JobRecord) -> str:
    command = job.command[2] if job.command[:2] == ("/bin/bash", "-c") else shlex.join(job.command)
    line = _printable(command)
    return line if len(line) <= MAX_COMMAND else f"{line[: MAX_COMMAND - 3]}..."


def _printable(text: str) -> str:
    """Replace unprintable characters by blanks: a command may contain line ends and control sequences."""
    return "".join(char if char.isprintable() else " " for char in text)


COMMANDS = {"close": close, "list": list_jobs, "logs": logs.show, "status": show_status, "stop": stop}
"""Functions that implement launcher.subcommands."""
