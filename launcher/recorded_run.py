"""Run one job from its record to its exit code: queue, signals, report; `launcher.job.run` does the runs."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from launcher.errors import BusyError, LaunchError
from launcher.job.failure import Failure, FailureCause
from launcher.job.run import JobContext, run_with_restarts
from launcher.job_queue.allocation import HostAllocator, QueueContext, allocate_now
from launcher.job_queue.queue_wait import QueueWait
from launcher.job_records.recorder import JobRecorder, jobs_directory
from launcher.output.notes import PRINT_TIMEOUT_S, note, print_last_note
from launcher.output.output_stream import OutputStream
from launcher.output.sink import Sink, Streams
from launcher.spec import JobSpec
from launcher.transport.pool.pool import ConnectionPool
from launcher.transport.protocol import FrameType

STDOUT_FD, STDERR_FD = 1, 2
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def standard_streams() -> Streams:
    """Return the outputs of a job that runs in this terminal."""
    return {FrameType.STDOUT: OutputStream(STDOUT_FD), FrameType.STDERR: OutputStream(STDERR_FD)}


def print_notes(notes: Sequence[str]) -> None:
    """Print notes about the options, before the job begins."""
    for line in notes:
        print_last_note(line, OutputStream(STDERR_FD))


def print_refusal(error: LaunchError) -> int:
    """Print the reason why the job was refused; return the exit code."""
    return print_failure(Failure(exit_code=error.exit_code, reason=str(error)), OutputStream(STDERR_FD))


def run_recorded_job(
    job: JobSpec,
    *,
    recorder: JobRecorder,
    cwd: str,
    streams: Streams,
    pool: ConnectionPool | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Run a job to its end and keep its record; return the exit code of the first rank that failed, or 0.

    `is_stopped` is called after the record is written: from then on, a stop finds the launcher and signals it.
    """
    recorder.begin()
    try:
        if is_stopped():
            failure: Failure | None = stopped_by(signal.SIGTERM)
        else:
            failure = asyncio.run(run_until_signal(job, recorder=recorder, cwd=cwd, streams=streams, pool=pool))
    except LaunchError as error:
        failure = Failure.of_error(error)
    except KeyboardInterrupt:  # the signal arrived before its handler was installed
        failure = stopped_by(signal.SIGINT)
    recorder.on_end(failure)
    stderr = streams[FrameType.STDERR]
    if recorder.write_error is not None:
        print_last_note(f"no record of the job is kept: {recorder.write_error}", stderr)
    code = 0 if failure is None else print_failure(failure, stderr)
    if upload_error := recorder.upload():
        print_last_note(f"the job's record is not in the bucket: {upload_error}", stderr)
    return code


def print_failure(failure: Failure, stderr: Sink) -> int:
    """Print the reason of the failure; return the exit code."""
    tail = b"".join(b"  | " + line + b"\n" for line in failure.tail)
    log = note(f"full log: {failure.log}") if failure.log else b""
    stderr.send_at_the_end(tail + log + note(failure.reason), timeout_s=PRINT_TIMEOUT_S)
    return failure.exit_code


async def run_until_signal(
    job: JobSpec, *, recorder: JobRecorder, cwd: str, streams: Streams, pool: ConnectionPool | None = None
) -> Failure | None:
    """Run `job`; a signal ends its ranks on every node and counts as the job's failure."""
    jobs_dir = jobs_directory()
    context = JobContext(
        job_id=recorder.job_id,
        cwd=cwd,
        streams=streams,
        observer=recorder,
        restart_host_allocator=HostAllocator(recorder.job_id, jobs_dir=jobs_dir, record=recorder.on_allocated),
        pool=pool,
    )
    queue_context = QueueContext(job_id=recorder.job_id, jobs_dir=jobs_dir, streams=streams, observer=recorder)

    async def run_on_nodes(allocated_job: JobSpec, has_waited: bool) -> Failure | None:
        return await run_with_restarts(allocated_job, replace(context, has_waited=has_waited))

    job_task = asyncio.ensure_future(allocate_and_run(job, queue_context, run_on_nodes=run_on_nodes))
    lock_toucher = asyncio.ensure_future(recorder.touch_lock_forever())
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


async def allocate_and_run(
    job: JobSpec, queue_context: QueueContext, *, run_on_nodes: Callable[[JobSpec, bool], Awaitable[Failure | None]]
) -> Failure | None:
    """Allocate the job's nodes and run it there; a job with --wait waits again if they turn out to be in use.

    `run_on_nodes` gets the job with its current nodes, and True if the job has waited.
    """
    if job.queue_policy is None:
        return await run_on_nodes(await allocate_now(job, queue_context), False)
    queue_wait = QueueWait(job, job.queue_policy, queue_context)
    while True:
        try:
            return await run_on_nodes(await queue_wait.wait_and_allocate(), queue_wait.has_waited)
        except BusyError as error:
            queue_wait.requeue(error)


def stopped_by(number: signal.Signals) -> Failure:
    """Return the failure of a job that the user stopped."""
    return Failure(exit_code=128 + number, reason=f"stopped by {number.name}", cause=FailureCause.CANCELLATION)
