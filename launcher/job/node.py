"""Follow one node's part of a running job."""

import asyncio
from dataclasses import dataclass

from launcher.errors import LaunchError
from launcher.hosts.hostfile import Host
from launcher.job.exit_hints import exit_hint
from launcher.job.missing_cwd import MissingCwd
from launcher.output.prefixes import ProcessOutput, Streams
from launcher.paths import JOBS_DIR
from launcher.spec import NodeSpec
from launcher.transport.connection import Connection
from launcher.transport.protocol import CANNOT_RUN, NOT_FOUND, Frame, FrameType

LOST = 1
"""Exit code of a job that lost a node."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Explain why a job failed: its exit code, one line, and the process's last output."""

    exit_code: int
    reason: str
    tail: tuple[bytes, ...] = ()
    log: str | None = None
    """File with the whole output."""
    final: bool = False
    """Whether no restart can help."""
    preempted: bool = False
    """Whether a node ended after notice (launcher.job.preemption), which is not the job's fault."""
    preempted_host: Host | None = None
    """The preempted node."""
    cancelled: bool = False
    """Whether somebody ended the job on purpose."""


def set_first_failure(failure: "asyncio.Future[Failure]", value: Failure) -> None:
    """Set the job's failure, unless it has one already."""
    if not failure.done():
        failure.set_result(value)


class Node:
    """Follow the processes behind one connection."""

    def __init__(
        self,
        connection: Connection,
        spec: NodeSpec,
        streams: Streams,
        missing_cwd: MissingCwd,
        *,
        shown: frozenset[int] | None = None,
    ) -> None:
        self.connection = connection
        self._spec = spec
        self._missing_cwd = missing_cwd
        # A process's index is its local rank where ranks are filtered by it.
        self._outputs = [
            ProcessOutput(f"{connection.host} [{one.label}] ", streams, is_shown=shown is None or index in shown)
            for index, one in enumerate(spec.processes)
        ]
        self._notes = streams[FrameType.STDERR]
        self._running = set(range(len(spec.processes)))
        self.decided = asyncio.Event()
        """Set when every process that the job waits for has ended."""
        self._told = self._heard_since = False
        self._check_decided()

    async def start(self, failure: "asyncio.Future[Failure]") -> None:
        """Tell the runner what to run."""
        try:
            await self.connection.start(self._spec)
        except LaunchError as error:
            set_first_failure(failure, Failure(exit_code=LOST, reason=str(error)))

    async def follow(self, failure: "asyncio.Future[Failure]") -> None:
        """Forward output until the runner ends; report the first failure."""
        try:
            async for frame in self.connection.frames():
                await self._take(frame, failure)
        except LaunchError as error:
            set_first_failure(failure, Failure(exit_code=error.exit_code, reason=str(error)))
        await self._missing_cwd.heard(self.connection.host, cwd_missing=False)
        for output in self._outputs:
            await output.finish()
        if self._running:
            reason = f"{self.connection.host}: lost: {await self.connection.end_reason()}"
            set_first_failure(failure, Failure(exit_code=LOST, reason=reason))

    def stop(self) -> None:
        """Tell the runner to end the processes; its frames continue until they have ended."""
        self._told = True
        self.connection.close()

    @property
    def is_lost(self) -> bool:
        """Whether nothing was heard since the processes were told to end."""
        return bool(self._running) and not self._heard_since

    async def _take(self, frame: Frame, failure: "asyncio.Future[Failure]") -> None:
        if self._told and frame.kind in (FrameType.ALIVE, FrameType.EXIT):  # output may have been on its way for long
            self._heard_since = True
        if frame.kind == FrameType.ALIVE:
            return
        if frame.kind == FrameType.NOTE:
            await self._notes.send(f"launch: {self.connection.host}: ".encode() + frame.payload + b"\n")
            return
        if frame.kind == FrameType.CWD:
            await self._missing_cwd.heard(self.connection.host, cwd_missing=bool(frame.payload))
            return
        output = self._outputs[frame.process]
        if frame.kind in (FrameType.STDOUT, FrameType.STDERR):
            await output.write(frame.kind, frame.payload)
        elif frame.kind == FrameType.EXIT:
            await output.finish()
            self._ended(frame.process, int(frame.payload), failure)

    def _ended(self, process: int, code: int, failure: "asyncio.Future[Failure]") -> None:
        self._running.discard(process)
        if code:
            one = self._spec.processes[process]
            reason = f"{self.connection.host}: {one.name} ended with exit code {code}{exit_hint(code, one.command)}"
            log = f"{self.connection.host}:~/{JOBS_DIR}/{self._spec.job_id}/{one.log}"
            tail = tuple(self._outputs[process].tail)
            # A command that cannot run now will not run the next time.
            final = code in (CANNOT_RUN, NOT_FOUND)
            set_first_failure(failure, Failure(exit_code=code, reason=reason, tail=tail, log=log, final=final))
        self._check_decided()

    def _check_decided(self) -> None:
        if not any(self._spec.processes[process].decisive for process in self._running):
            self.decided.set()
