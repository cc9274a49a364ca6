"""Start a job's processes on its nodes, follow them, and end all of them at the first failure."""

import asyncio
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from launcher.errors import LaunchError
from launcher.hosts.hostfile import Host
from launcher.job.connect import close_connections
from launcher.job.exit_hints import exit_hint
from launcher.job.failure import NODE_LOST_EXIT_CODE, Failure, FailureCause, set_first_failure
from launcher.job.missing_cwd import MissingCwd
from launcher.job.node_loss import watch_for_node_loss
from launcher.output.prefixes import ProcessOutput
from launcher.output.sink import Sink, Streams
from launcher.paths import JOBS_DIR
from launcher.spec import NodeSpec
from launcher.transport.connection import RunnerConnection
from launcher.transport.protocol import AFTER_GRACE_S, CANNOT_RUN, CWD_MISSING, NOT_FOUND, Frame, FrameType

SERVER_EXIT_S = 5.0
"""Seconds for which parameter servers, which exit without a request, may outlive their workers."""
READER_CHECK_S = 1.0
"""Seconds between checks that the job's output still has a reader."""
OUTPUT_LOST_EXIT_CODE = 128 + signal.SIGPIPE
"""Exit code of a job whose output has lost its reader."""


class NodeRun:
    """One run of a job on one node: the node's connection, processes and output."""

    def __init__(
        self,
        connection: RunnerConnection,
        spec: NodeSpec,
        streams: Streams,
        missing_cwd: MissingCwd,
        *,
        shown_local_ranks: frozenset[int] | None = None,
    ) -> None:
        self.connection = connection
        self._spec = spec
        self._missing_cwd = missing_cwd
        # If ranks are filtered, a process's index is its local rank.
        self._outputs = [
            ProcessOutput(
                f"{connection.host} [{process.label}] ",
                streams,
                is_shown=shown_local_ranks is None or index in shown_local_ranks,
            )
            for index, process in enumerate(spec.processes)
        ]
        self._stderr = streams[FrameType.STDERR]
        self._running = set(range(len(spec.processes)))
        self.required_processes_ended = asyncio.Event()
        """Set once every process that the job waits for has ended."""
        self._stop_requested = self._answered_stop = False
        self._check_required_processes()

    async def start(self, first_failure: "asyncio.Future[Failure]") -> None:
        """Send the spec, after which the runner starts the processes."""
        try:
            await self.connection.send_spec(self._spec)
        except LaunchError as error:
            set_first_failure(first_failure, Failure(exit_code=NODE_LOST_EXIT_CODE, reason=str(error)))

    async def follow(self, first_failure: "asyncio.Future[Failure]") -> None:
        """Forward output until the runner ends; report the first failure."""
        try:
            async for frame in self.connection.frames():
                await self._on_frame(frame, first_failure)
        except LaunchError as error:
            set_first_failure(first_failure, Failure(exit_code=error.exit_code, reason=str(error)))
        # A node that ended without an answer counts as having the directory.
        await self._missing_cwd.record_answer(self.connection.host, cwd_missing=False)
        for output in self._outputs:
            await output.finish()
        if self._running:
            reason = f"{self.connection.host}: lost: {await self.connection.end_reason()}"
            set_first_failure(first_failure, Failure(exit_code=NODE_LOST_EXIT_CODE, reason=reason))

    def stop(self) -> None:
        """Ask the runner to end the processes; frames arrive until they have ended."""
        self._stop_requested = True
        self.connection.request_stop()

    @property
    def is_silent_after_stop(self) -> bool:
        """Return True if processes may still run although no heartbeat or exit has arrived since the stop request."""
        return bool(self._running) and not self._answered_stop

    async def _on_frame(self, frame: Frame, first_failure: "asyncio.Future[Failure]") -> None:
        # Output frames may have been sent before the request, so they prove nothing.
        if self._stop_requested and frame.kind in (FrameType.HEARTBEAT, FrameType.EXIT):
            self._answered_stop = True
        if frame.kind == FrameType.HEARTBEAT:
            return
        if frame.kind == FrameType.NOTE:
            await self._stderr.send(f"launch: {self.connection.host}: ".encode() + frame.payload + b"\n")
            return
        if frame.kind == FrameType.CWD:
            cwd_missing = frame.payload == CWD_MISSING
            await self._missing_cwd.record_answer(self.connection.host, cwd_missing=cwd_missing)
            return
        output = self._outputs[frame.process]
        if frame.kind in (FrameType.STDOUT, FrameType.STDERR):
            await output.write(frame.kind, frame.payload)
        elif frame.kind == FrameType.EXIT:
            await output.finish()
            self._on_exit(frame.process, int(frame.payload), first_failure)

    def _on_exit(self, index: int, code: int, first_failure: "asyncio.Future[Failure]") -> None:
        self._running.discard(index)
        if code:
            process = self._spec.processes[index]
            output = self._outputs[index]
            hint = exit_hint(code, process.command, output.tail)
            reason = f"{self.connection.host}: {process.name} ended with exit code {code}{hint}"
            log = f"{self.connection.host}:~/{JOBS_DIR}/{self._spec.job_id}/{process.log}"
            # A command that cannot be executed now will fail again.
            permanent = code in (CANNOT_RUN, NOT_FOUND)
            set_first_failure(
                first_failure,
                Failure(
                    exit_code=code,
                    reason=reason,
                    failed_rank=process.rank,
                    tail=() if output.is_shown else tuple(output.tail),
                    log=log,
                    cause=FailureCause.PROCESS_EXIT,
                    permanent=permanent,
                ),
            )
        self._check_required_processes()

    def _check_required_processes(self) -> None:
        if not any(self._spec.processes[index].is_required for index in self._running):
            self.required_processes_ended.set()


async def supervise_nodes(
    nodes: Sequence[NodeRun], hosts: Sequence[Host], stdout: Sink, *, grace_s: float
) -> Failure | None:
    """Start the processes, wait for the end or the first failure, then end the remaining ones."""
    first_failure: asyncio.Future[Failure] = asyncio.get_running_loop().create_future()
    follow_tasks = [asyncio.create_task(node.follow(first_failure)) for node in nodes]
    all_ended = asyncio.create_task(asyncio.wait(follow_tasks))
    required_ended = asyncio.create_task(_wait_for_required_processes(nodes))
    watch_tasks: list[asyncio.Task[None]] = []
    awaited: set[asyncio.Future[Any]] = {first_failure, all_ended, required_ended}
    try:
        await asyncio.gather(*(node.start(first_failure) for node in nodes))
        # Start to watch after the ranks: the first check reads the agent's state file, which would delay the start.
        watch_tasks += [
            asyncio.create_task(fail_if_output_reader_leaves(stdout, first_failure)),
            asyncio.create_task(watch_for_node_loss(hosts, first_failure)),
        ]
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        # From here on the exit code of a remaining process, such as a parameter server, does not matter.
        outcome = first_failure.result() if first_failure.done() else None
        if outcome is None:
            await asyncio.wait({all_ended}, timeout=SERVER_EXIT_S)
    finally:
        for task in (*watch_tasks, required_ended):
            task.cancel()
        await end_nodes(nodes, follow_tasks, timeout_s=grace_s + AFTER_GRACE_S)
    return outcome


async def _wait_for_required_processes(nodes: Sequence[NodeRun]) -> None:
    for node in nodes:
        await node.required_processes_ended.wait()


async def fail_if_output_reader_leaves(stdout: Sink, first_failure: "asyncio.Future[Failure]") -> None:
    """Fail the job when its output loses its reader, even while the job prints nothing."""
    while not stdout.reader_has_gone():
        await asyncio.sleep(READER_CHECK_S)
    if lost := output_failure(stdout):
        set_first_failure(first_failure, lost)


def output_failure(stdout: Sink) -> Failure | None:
    """Return a failure if the job's output could not be written completely, else None."""
    if stdout.write_error is None:
        return None
    return Failure(
        exit_code=OUTPUT_LOST_EXIT_CODE,
        reason=f"cannot write the output any more: {stdout.write_error}",
        permanent=True,
    )


async def end_nodes(
    nodes: Sequence[NodeRun], follow_tasks: Sequence["asyncio.Task[None]"], *, timeout_s: float
) -> None:
    """Ask every runner to end its processes; cut the connections of those that exceed the deadline."""
    for node in nodes:
        if not node.connection.is_idle:
            node.stop()
    _, late = await asyncio.wait(follow_tasks, timeout=timeout_s)
    for task in late:
        task.cancel()
    for task in late:
        with suppress(asyncio.CancelledError):
            await task
    await close_connections([node.connection for node in nodes if not node.connection.is_idle])
