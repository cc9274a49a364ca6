"""Implement ``launch logs``: print a job's output from the logs on this machine or on its nodes."""

import argparse
import os
import shlex
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from launcher.errors import LaunchError, UsageError
from launcher.hosts.hostfile import LOCAL_HOST, Host
from launcher.job.connect import is_this_machine
from launcher.job_records import job_lookup
from launcher.job_records.records import JobRecord
from launcher.paths import JOB_LOG
from launcher.transport.ssh import client_command
from launcher.validate import whole_number

READER = Path(__file__).parents[1] / "job_records" / "reader"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``launch logs``."""
    parser.add_argument("-f", "--follow", action="store_true", help="follow the output until the job ends")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--rank", metavar="N", help="show only this rank's output, from its node")
    source.add_argument("--node", metavar="HOST", help="show only this node's output")


def show(options: argparse.Namespace) -> int:
    """Print a job's log; return 1 if any part could not be read."""
    job = job_lookup.find(options.job)
    host, names = _find_logs(job, options)
    args = ["python3", "-I", "-S", "-X", "utf8", str(READER), *(["-f"] if options.follow else []), job.id, *names]
    # When this process ends, ssh's input closes, which ends the reader.
    command = args if host is None else [*client_command(host), "--", host.name, shlex.join(args)]
    reader, writer = os.pipe()
    try:
        with subprocess.Popen(command, stdin=reader) as process:
            os.close(reader)
            try:
                code = process.wait()
            except KeyboardInterrupt:
                process.terminate()
                return 128 + signal.SIGINT
    except OSError as error:
        raise LaunchError(f"cannot run {command[0]}: {error.strerror}") from error
    finally:
        os.close(writer)
    return min(code, 1) if code >= 0 else 128 - code


def _find_logs(job: JobRecord, options: argparse.Namespace) -> tuple[Host | None, Sequence[str]]:
    """Return the host that has the logs (None means this machine) and their names."""
    if options.rank is None and options.node is None:
        if not job.detached:
            raise UsageError(
                f"job {job.id} was not detached: its output went to its terminal; "
                "--rank N or --node HOST shows the logs on its nodes"
            )
        return None, [JOB_LOG]
    if not job.logs:
        raise UsageError(f"job {job.id} has no logs: no process of it has started")
    if options.node is not None:
        if options.node not in job.logs:
            raise UsageError(f"--node must be one of {', '.join(job.logs)}, got {options.node!r}")
        return _host(options.node, job), job.logs[options.node]
    name = f"rank-{whole_number(options.rank, name='--rank', minimum=0)}.log"
    for host, names in job.logs.items():
        if name in names:
            return _host(host, job), [name]
    names_known = ", ".join(name.removesuffix(".log") for names in job.logs.values() for name in names)
    raise UsageError(f"--rank must name a process of job {job.id}, which has {names_known}, got {options.rank!r}")


def _host(text: str, job: JobRecord) -> Host | None:
    """Return the host with the requested logs; None for this machine, which the launcher reached without ssh."""
    name, colon, port = text.partition(":")
    host = Host(name=name, port=int(port) if colon else None)
    first = text == job.hosts[0]
    return None if first and (name == LOCAL_HOST or is_this_machine(host)) else host
