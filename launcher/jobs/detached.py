"""A detached job inside its unit: ``launch`` with a log for a terminal."""

import os
import socket
from pathlib import Path

from launcher.frames import Kind
from launcher.jobs.journal import Journal, jobs_directory
from launcher.jobs.log import LogSink
from launcher.jobs.request import Request
from launcher.main import carry_out
from launcher.options import parse_options

NOTIFY_VARIABLE = "NOTIFY_SOCKET"


def main(handed_over: Path) -> int:
    """Run the job that the file asks for; returns the exit code of ``launch``."""
    systemd = os.environ.get(NOTIFY_VARIABLE)
    request = Request.take(handed_over)
    request.enter()
    # The shell's launch has tried the same command line already.
    job = parse_options(request.arguments, environ=os.environ)
    directory = jobs_directory() / request.job_id
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = LogSink(directory)
    return carry_out(
        job,
        journal=Journal(job, job_id=request.job_id, cwd=request.cwd, detached=True, on_running=lambda: ready(systemd)),
        cwd=request.cwd,
        streams={Kind.STDOUT: log, Kind.STDERR: log},
    )


def ready(systemd: str | None) -> None:
    """Tell systemd that the job has started; see sd_notify(3)."""
    if systemd:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto(b"READY=1", systemd.replace("@", "\0", 1))
