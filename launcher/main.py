"""``launch [options] COMMAND...``: the launcher's main."""

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from launcher.channel import Channel
from launcher.errors import LaunchError
from launcher.frames import Kind
from launcher.jobs.journal import Journal
from launcher.node import Failure
from launcher.options import parse_options
from launcher.output import Sink, Streams
from launcher.restarts import new_job_id, run_job
from launcher.spec import Job

STDIN_FD, STDOUT_FD, STDERR_FD = 0, 1, 2
LAST_WORDS_DEADLINE_S = 10.0
VERBS = ("close", "list", "logs", "status", "stop")
"""First words that are not a command's: ``launch -- list`` runs a command of that name."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(arguments: Sequence[str]) -> int:
    """Run one job, or do what a verb asks; returns the exit code."""
    open_streams()
    keep_to_ourselves()
    streams = {Kind.STDOUT: Channel(STDOUT_FD), Kind.STDERR: Channel(STDERR_FD)}
    try:
        if arguments and arguments[0] in VERBS:
            return run_verb(arguments)
        job = parse_options(arguments, environ=os.environ)
        cwd = working_directory()
        for line in job.notes:
            note(line, streams[Kind.STDERR])
        if job.detach:
            return detach(arguments, cwd=cwd)
        return carry_out(job, journal=Journal(job, job_id=new_job_id(), cwd=cwd), cwd=cwd, streams=streams)
    except LaunchError as error:
        return last_words(Failure(exit_code=error.exit_code, reason=str(error)), streams[Kind.STDERR])


def run_verb(arguments: Sequence[str]) -> int:
    """Do what a verb asks."""
    # Most jobs need none of it, and should start at once.
    from launcher.jobs.verbs import main as verb

    return verb(arguments)


def detach(arguments: Sequence[str], *, cwd: str) -> int:
    """Start a detached job."""
    from launcher.jobs.detach import detach as start

    return start(arguments, cwd=cwd)


def carry_out(job: Job, *, journal: Journal, cwd: str, streams: Streams) -> int:
    """Run a job to its end; returns the exit code of the first rank that failed, or 0."""
    journal.begin()
    try:
        failure = asyncio.run(run_until_signal(job, journal=journal, cwd=cwd, streams=streams))
    except LaunchError as error:
        failure = Failure(exit_code=error.exit_code, reason=str(error))
    except KeyboardInterrupt:  # before it was heeded otherwise
        failure = stopped_by(signal.SIGINT)
    journal.ended(failure)
    stderr = streams[Kind.STDERR]
    if journal.trouble is not None:
        note(f"no record of the job is kept: {journal.trouble}", stderr)
    code = 0 if failure is None else last_words(failure, stderr)
    if trouble := journal.publish():
        note(f"the job's record is not in the bucket: {trouble}", stderr)
    return code


def note(line: str, stderr: Sink) -> None:
    """Tell the user of something that is no failure of the job."""
    stderr.send_at_the_end(f"launch: {line}\n".encode(errors="surrogateescape"), deadline_s=LAST_WORDS_DEADLINE_S)


def last_words(failure: Failure, stderr: Sink) -> int:
    """Say why the job failed; returns its exit code."""
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


def keep_to_ourselves() -> None:
    """Pass on none of the descriptors that the caller left open: what is kept for the next job outlives this one.

    A lock of flock(1) would be held by it, and the reader of a pipe would wait for it.
    """
    for entry in Path("/proc/self/fd").iterdir():
        fd = int(entry.name)
        with suppress(OSError):  # the directory itself was one of them
            os.set_inheritable(fd, fd <= STDERR_FD)


def working_directory() -> str:
    """The directory that the ranks start in."""
    try:
        return str(Path.cwd())
    except FileNotFoundError as error:
        raise LaunchError("the current directory no longer exists") from error


async def run_until_signal(job: Job, *, journal: Journal, cwd: str, streams: Streams) -> Failure | None:
    """Run `job`; a signal ends its ranks everywhere and is the job's failure."""
    running = asyncio.ensure_future(run_job(job, job_id=journal.job_id, cwd=cwd, streams=streams, observer=journal))
    beating = asyncio.ensure_future(journal.beat())
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
        # Until the handlers are there, asyncio's own cancels this task by itself, from Python 3.11 on.
        return stopped_by(received[0] if received else signal.SIGINT)
    finally:
        beating.cancel()


def stopped_by(number: signal.Signals) -> Failure:
    """The end of a job that somebody has asked for."""
    return Failure(exit_code=128 + number, reason=f"stopped by {number.name}", cancelled=True)
