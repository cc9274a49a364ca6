"""``launch [options] COMMAND...``: the launcher's main."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from launcher.channel import Channel
from launcher.errors import LaunchError
from launcher.frames import Kind
from launcher.node import Failure
from launcher.options import parse_options
from launcher.restarts import run_job
from launcher.spec import Job

STDIN_FD, STDOUT_FD, STDERR_FD = 0, 1, 2
LAST_WORDS_DEADLINE_S = 10.0
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(arguments: Sequence[str]) -> int:
    """Run one job; returns the exit code of the first rank that failed, or 0."""
    open_streams()
    stderr = Channel(STDERR_FD)
    try:
        job = parse_options(arguments, environ=os.environ)
        use_one_thread()
        failure = asyncio.run(run_until_signal(job, cwd=working_directory(), stderr=stderr))
    except LaunchError as error:
        failure = Failure(exit_code=error.exit_code, reason=str(error))
    if failure is None:
        return 0
    tail = b"".join(b"  | " + line + b"\n" for line in failure.tail)
    where = f"launch: all that it said: {failure.log}\n" if failure.log else ""
    said = tail + f"{where}launch: {failure.reason}\n".encode(errors="surrogateescape")
    stderr.send_at_the_end(said, deadline_s=LAST_WORDS_DEADLINE_S)
    return failure.exit_code


def open_streams() -> None:
    """Let output that the caller closed (``>&-``) go nowhere, and not into the first file that is opened."""
    for fd in (STDIN_FD, STDOUT_FD, STDERR_FD):
        try:
            os.fstat(fd)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), fd)


def use_one_thread() -> None:
    """Have asyncio wait for child processes without a thread for each, as it does from 3.12 on."""
    if sys.version_info < (3, 12):
        asyncio.set_child_watcher(asyncio.PidfdChildWatcher())


def working_directory() -> str:
    """The directory that the ranks start in."""
    try:
        return str(Path.cwd())
    except FileNotFoundError as error:
        raise LaunchError("the current directory no longer exists") from error


async def run_until_signal(job: Job, *, cwd: str, stderr: Channel) -> Failure | None:
    """Run `job`; a signal ends its ranks everywhere and is the job's failure."""
    streams = {Kind.STDOUT: Channel(STDOUT_FD), Kind.STDERR: stderr}
    running = asyncio.ensure_future(run_job(job, cwd=cwd, streams=streams))
    received: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        # A second signal must not interrupt the ending of the ranks.
        if not received:
            received.append(number)
            running.cancel()

    for number in STOP_SIGNALS:
        # Under nohup the job outlives its terminal.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, stop, number)
    # Suspended, it would give no sign of life, and its nodes would end the job.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTSTP, lambda: None)
    try:
        return await running
    except asyncio.CancelledError:
        return Failure(exit_code=128 + received[0], reason=f"stopped by {received[0].name}")
