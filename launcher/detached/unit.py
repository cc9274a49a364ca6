"""Run a detached job inside its unit: ``launch`` with a log instead of a terminal."""

import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from launcher.detached.detach import runtime_directory
from launcher.detached.request import DetachedJob
from launcher.errors import LaunchError
from launcher.job.failure import Failure
from launcher.job_records.recorder import JobRecorder, jobs_directory
from launcher.job_records.records import JobState
from launcher.options.parser import parse_options
from launcher.paths import JOB_LOG
from launcher.recorded_run import run_recorded_job
from launcher.runner.logs import ProcessLog
from launcher.spec import JobSpec
from launcher.transport.protocol import FrameType

NOTIFY_VARIABLE = "NOTIFY_SOCKET"
SYSTEMD_TIMEOUT_S = 10.0
"""Timeout for the user's systemd to answer, in seconds."""


class AttemptHooks(Protocol):
    """Hooks through which a durable job changes its run (launcher.durable.attempt)."""

    def prepare(self, job: JobSpec) -> JobSpec:
        """Return the job to run in this attempt."""

    def is_stopped(self) -> bool:
        """Return True if a user has stopped the job."""

    def stays_open(self, failure: Failure, state: JobState) -> bool:
        """Return True if the job continues with another attempt after this failure."""

    def finish(self, state: JobState) -> None:
        """Close the job if it is over."""


def main(job_file: Path, *, hooks: Callable[[str, int], AttemptHooks] | None = None) -> int:
    """Run the job that the file describes; return the exit code of ``launch``.

    `hooks` creates a durable job's AttemptHooks from its id and attempt number.
    """
    systemd = os.environ.get(NOTIFY_VARIABLE)
    request = DetachedJob.take(job_file)
    request.enter()
    # `launch` in the user's shell has already parsed the same command line.
    job = parse_options(request.arguments, environ=os.environ)
    durable = hooks(request.job_id, request.attempt) if hooks else None
    if durable is not None:
        job = durable.prepare(job)
    directory = jobs_directory() / request.job_id
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = LogSink(directory)
    recorder = JobRecorder(
        job,
        job_id=request.job_id,
        cwd=request.cwd,
        detached=True,
        on_start=lambda: notify_systemd(systemd),
        systemd_is_stopping=systemd_is_stopping,
        attempt=request.attempt,
        submitted_at=request.submitted,
        started_by=request.started_by,
        stays_open=durable.stays_open if durable else lambda failure, state: False,
    )
    code = run_recorded_job(
        job,
        recorder=recorder,
        cwd=request.cwd,
        streams={FrameType.STDOUT: log, FrameType.STDERR: log},
        is_stopped=durable.is_stopped if durable else lambda: False,
    )
    if durable is not None:
        durable.finish(recorder.state)
    return code


def notify_systemd(systemd: str | None) -> None:
    """Tell systemd that the job has started; see sd_notify(3)."""
    if systemd:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto(b"READY=1", systemd.replace("@", "\0", 1))


def systemd_is_stopping() -> bool:
    """Return True if systemd is stopping the user's whole session, not only this job; see systemctl(1)."""
    try:
        state = subprocess.run(
            ["systemctl", "--user", "is-system-running"],
            env={**os.environ, "XDG_RUNTIME_DIR": str(runtime_directory())},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=SYSTEMD_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired, LaunchError):
        return False
    return state.stdout.strip() == b"stopping"


class LogSink:
    """A launcher.output.sink.Sink that writes a rotated log; a full disk ends the log, not the job."""

    def __init__(self, directory: Path) -> None:
        self.write_error: str | None = None
        self.is_terminal = False
        self._log = ProcessLog(str(directory / JOB_LOG))

    async def send(self, data: bytes) -> None:
        self._log.write(data)

    def send_at_the_end(self, data: bytes, *, timeout_s: float) -> None:
        self._log.write(data)

    def reader_has_gone(self) -> bool:
        return False
