"""Parse and run a subcommand of ``launch``; implement ``list``, ``status`` and ``close``."""

import argparse
import json
import os
import shlex
import signal
import sys
import time
from calendar import timegm
from collections.abc import Callable, Sequence
from typing import NoReturn

from launcher.errors import UsageError
from launcher.job_records import job_lookup
from launcher.job_records.durable_state import mark_ended
from launcher.job_records.records import JobRecord, JobState
from launcher.subcommand_names import SUBCOMMANDS
from launcher.subcommands import logs, stop
from launcher.transport.pool.client import close_idle

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
            help="job id, its end, its name, or a unique prefix (default: the running job, else the latest)",
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
    print(COLUMNS.format("JOB", "STATE", "SUBMITTED", "TIME", "NODES", "BY", head, "COMMAND"))
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


def close(_: argparse.Namespace) -> int:
    """Close the connections kept for the next launch, and print their number."""
    count = close_idle(os.environ)
    print(f"{count} connection{'s' if count != 1 else ''} closed")
    return 0


def duration(job: JobRecord) -> str:
    """Format the duration of a job, so far if it runs; a dash if its end was not recorded."""
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


COMMANDS = {"close": close, "list": list_jobs, "logs": logs.show, "status": show_status, "stop": stop.stop}
"""Functions that implement launcher.subcommand_names."""
