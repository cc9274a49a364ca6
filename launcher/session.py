"""Run one job in a terminal or as a systemd unit: keep its record, handle signals, report its end."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence

from launcher.errors import BusyError, LaunchError
from launcher.history.journal import Journal, jobs_directory, user_name
from launcher.history.key_name import key_name
from launcher.history.records import new_job_id
from launcher.job.attempt import run_job
from launcher.job.failure import Failure
from launcher.job_queue.free_hosts import HostClaims
from launcher.job_queue.turn import Ticket, Turn, take_nodes
from launcher.output.output_stream import OutputStream
from launcher.output.prefixes import Sink, Streams
from launcher.spec import Job
from launcher.transport.pool.pool import ConnectionPool
from launcher.transport.protocol import FrameType

STDOUT_FD, STDERR_FD = 1, 2
PRINT_TIMEOUT_S = 10.0
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_in_terminal(job: Job, *, cwd: str, pool: ConnectionPool | None) -> int:
    """Run a job for this terminal; return its exit code."""
    print_notes(job.notes)
    streams = {FrameType.STDOUT: OutputStream(STDOUT_FD), FrameType.STDERR: OutputStream(STDERR_FD)}
    journal = Journal(job, job_id=new_job_id(), cwd=cwd, started_by=key_name(os.environ, user=user_name()))
    return run_and_record(job, journal=journal, cwd=cwd, streams=streams, pool=pool)


def print_notes(notes: Sequence[str]) -> None:
    """Print notes about the options, before the job begins."""
    for line in notes:
        print_note(line, OutputStream(STDERR_FD))


def print_refusal(error: LaunchError) -> int:
    """Print why the job was refused; return the exit code."""
    return print_failure(Failure(exit_code=error.exit_code, reason=str(error)), OutputStream(STDERR_FD))


def run_and_record(
    job: Job,
    *,
    journal: Journal,
    cwd: str,
    streams: Streams,
    pool: ConnectionPool | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Run a job to its end; return the exit code of the first rank that failed, or 0.

    `is_stopped` is called after the record is written: from then on, a stop finds the launcher and signals it.
    """
    journal.begin()
    try:
        if is_stopped():
            failure: Failure | None = stopped_by(signal.SIGTERM)
        else:
            failure = asyncio.run(run_with_signal_handlers(job, journal=journal, cwd=cwd, streams=streams, pool=pool))
    except LaunchError as error:
        failure = Failure.of_error(error)
    except KeyboardInterrupt:  # the signal arrived before its handler was installed
        failure = stopped_by(signal.SIGINT)
    journal.on_end(failure)
    stderr = streams[FrameType.STDERR]
    if journal.write_error is not None:
        print_note(f"no record of the job is kept: {journal.write_error}", stderr)
    code = 0 if failure is None else print_failure(failure, stderr)
    if upload_error := journal.publish():
        print_note(f"the job's record is not in the bucket: {upload_error}", stderr)
    return code


def print_note(line: str, stderr: Sink) -> None:
    """Print a notice on stderr; it does not change the exit code."""
    stderr.send_at_the_end(f"launch: {line}\n".encode(errors="surrogateescape"), deadline_s=PRINT_TIMEOUT_S)


def print_failure(failure: Failure, stderr: Sink) -> int:
    """Print why the job failed; return its exit code."""
    tail = b"".join(b"  | " + line + b"\n" for line in failure.tail)
    log = f"launch: full log: {failure.log}\n" if failure.log else ""
    lines = tail + f"{log}launch: {failure.reason}\n".encode(errors="surrogateescape")
    stderr.send_at_the_end(lines, deadline_s=PRINT_TIMEOUT_S)
    return failure.exit_code


async def run_with_signal_handlers(
    job: Job, *, journal: Journal, cwd: str, streams: Streams, pool: ConnectionPool | None = None
) -> Failure | None:
    """Run `job`; a signal ends its ranks on every node and counts as the job's failure."""
    job_id = journal.job_id
    ticket = Ticket(job_id=job_id, jobs=jobs_directory(), streams=streams, observer=journal)

    async def run(job: Job, has_waited: bool) -> Failure | None:
        return await run_job(
            job,
            job_id=job_id,
            cwd=cwd,
            streams=streams,
            observer=journal,
            pool=pool,
            has_waited=has_waited,
            restart_hosts=HostClaims(job_id, jobs=ticket.jobs, record=journal.on_turn),
        )

    job_task = asyncio.ensure_future(start_in_turn(job, ticket, start=run))
    lock_toucher = asyncio.ensure_future(journal.touch_lock_forever())
    received: list[signal.Signals] = []

    def on_signal(number: signal.Signals) -> None:
        # A second signal must not interrupt the cleanup.
        if not received:
            received.append(number)
            job_task.cancel()

    for number in STOP_SIGNALS:
        # Under nohup, the job outlives its terminal.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, on_signal, number)
    # A suspended launcher would send no heartbeats, and its nodes would end the job.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTSTP, lambda: None)
    try:
        return await job_task
    except asyncio.CancelledError:
        # Until the handlers are installed, asyncio's own handler cancels this task (Python 3.11 and later).
        return stopped_by(received[0] if received else signal.SIGINT)
    finally:
        lock_toucher.cancel()


async def start_in_turn(
    job: Job, ticket: Ticket, *, start: Callable[[Job, bool], Awaitable[Failure | None]]
) -> Failure | None:
    """Run a job with `start` when its turn comes, and queue it again if its nodes turn out to be in use.

    `start` gets the job with its current nodes, and True if the job has waited.
    """
    if job.wait is None:
        return await start(await take_nodes(job, ticket), False)
    turn = Turn(job, job.wait, ticket)
    while True:
        try:
            return await start(await turn.wait(), turn.has_waited)
        except BusyError as error:
            turn.try_later(error)


def stopped_by(number: signal.Signals) -> Failure:
    """Return the failure of a job that the user stopped."""
    return Failure(exit_code=128 + number, reason=f"stopped by {number.name}", cancelled=True)
