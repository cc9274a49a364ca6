"""Talk to the runner on one node: start it over ssh, exchange frames with it, end it."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from launcher.errors import ErrorKind, NodeError
from launcher.hosts.hostfile import Host
from launcher.spec import NodeSpec
from launcher.transport.gpus_in_use import GpusInUse
from launcher.transport.process import PipedProcess
from launcher.transport.protocol import (
    FRAME_TYPES,
    GREETING,
    HEADER,
    HEARTBEAT,
    HEARTBEAT_INTERVAL_S,
    HEARTBEAT_TIMEOUT_S,
    MAX_PAYLOAD,
    PROTOCOL_VERSION,
    Frame,
    FrameType,
)
from launcher.transport.ssh import SSH_FAILED_EXIT_CODE, error_kind
from launcher.transport.stderr_tail import StderrTail, last_line

MAX_UNREAD = 1 << 20
WAKE_TIMEOUT_S = 1.0
"""Timeout in seconds for the first answer of an idle runner; opening a new connection takes less."""
EXIT_TIMEOUT_S = 5.0


class RunnerConnection:
    """Connection to a runner that has answered. Closing it ends the ranks of its node."""

    def __init__(self, host: Host, process: PipedProcess) -> None:
        self.host = host
        self.free_port = 0
        self.is_local = False
        """True if the node is this machine, reached without ssh."""
        self.address: str | None = None
        """Address at which the node's sshd accepted the connection."""
        self.gpus = GpusInUse()
        self.efa_devices: int | None = None
        """Elastic Fabric Adapters of the node; None if its release does not say."""
        self.setup = ""
        """State of the node's setup, as JSON (contract.SETUP_STATE_FILE); empty without a setup."""
        self.is_idle = False
        """True if the runner waits for another job and nothing of the last job is left."""
        self._process = process
        self._stdin: asyncio.StreamWriter
        self._stdout: asyncio.StreamReader
        """Our ends of the runner's pipes, once _attach has run."""
        self._reading: asyncio.BaseTransport | None = None
        self._stderr_tail = StderrTail(process.stderr_fd)
        self._reading_since: float | None = None
        """Time at which the read of the next frame began; None while nothing reads."""
        self._timed_out = False
        self._heartbeats: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        host: Host,
        command: Sequence[str],
        *,
        timeout_s: float,
        environment: Mapping[str, str] | None = None,
    ) -> "RunnerConnection":
        """Start a runner and wait until it is ready; `environment` replaces the launcher's own."""
        try:
            process = PipedProcess.start(command, environment=environment)
        except OSError as error:
            raise NodeError(str(host), f"cannot run {command[0]}: {error.strerror}") from error
        connection = cls(host, process)
        await connection._handshake(connection._read_preamble_and_ready, timeout_s=timeout_s)
        return connection

    @classmethod
    async def resume(cls, host: Host, process: PipedProcess, *, timeout_s: float) -> "RunnerConnection":
        """Reuse an idle runner of an earlier launch, which this launch has woken (launcher.transport.protocol.WAKE).

        Raises NodeError if the runner is gone or its session is out of date.
        """
        connection = cls(host, process)
        await connection._handshake(connection._read_ready_again, timeout_s=timeout_s)
        return connection

    async def _handshake(self, read_answer: Callable[[], Awaitable[None]], *, timeout_s: float) -> None:
        try:
            await self._attach()
            await asyncio.wait_for(read_answer(), timeout_s)
        except asyncio.TimeoutError as error:
            await self.kill()
            raise self._error(f"no answer within {timeout_s:g} s") from error
        except BaseException:
            await self.kill()
            raise

    async def _attach(self) -> None:
        """Let the event loop read and write the runner's pipes."""
        loop = asyncio.get_running_loop()
        outgoing = asyncio.StreamReaderProtocol(asyncio.StreamReader())
        writing, _ = await loop.connect_write_pipe(lambda: outgoing, self._process.stdin)
        self._stdin = asyncio.StreamWriter(writing, outgoing, None, loop)
        self._stdout = asyncio.StreamReader(MAX_UNREAD)
        incoming = asyncio.StreamReaderProtocol(self._stdout)
        self._reading, _ = await loop.connect_read_pipe(lambda: incoming, self._process.stdout)

    async def _read_preamble_and_ready(self) -> None:
        try:
            await self._read_greeting()
            version = (await self._stdout.readline()).decode(errors="replace").strip()
            if version != PROTOCOL_VERSION:
                # After a deploy, nodes may run different releases.
                cause = f"its runner speaks version {version} and not {PROTOCOL_VERSION}"
                raise self._error(cause, kind=ErrorKind.OTHER_VERSION)
            self._on_ready(await self._read_frame())
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise await self._end_error() from error

    async def _read_greeting(self) -> None:
        try:
            await self._stdout.readuntil(GREETING)
        except asyncio.IncompleteReadError as error:
            # Another program answered, such as the message that AWS's images show to root.
            raise await self._end_error(output=error.partial) from error

    async def _read_ready_again(self) -> None:
        try:
            # The runner first confirms that its session is valid; its complete answer may take a while.
            frame = await asyncio.wait_for(self._read_frame(), WAKE_TIMEOUT_S)
            self._on_ready(await self._read_frame() if frame.kind == FrameType.HEARTBEAT else frame)
        except asyncio.IncompleteReadError as error:
            raise self._error("its idle runner has gone") from error

    def _on_ready(self, frame: Frame) -> None:
        values = json.loads(frame.payload)
        self.free_port, self.address = int(values["port"]), values["address"]
        self.gpus = GpusInUse.from_json(values.get("gpus", {}))
        self.efa_devices = values.get("efa")
        self.setup = values.get("setup", "")
        self._heartbeats = asyncio.create_task(self._keep_alive())

    async def send_spec(self, spec: NodeSpec) -> None:
        """Send the spec, after which the runner starts the ranks."""
        await self.send(spec.to_line())

    async def send(self, data: bytes) -> None:
        """Send all of `data` without a heartbeat in between."""
        try:
            self._stdin.write(data)
            await self._stdin.drain()
        except ConnectionError as error:
            raise self._error(await self.end_reason()) from error

    async def frames(self) -> AsyncIterator[Frame]:
        """Yield the runner's frames until it or the connection ends, or it waits for another job."""
        try:
            while (frame := await self._read_frame()).kind != FrameType.IDLE:
                yield frame
            self.is_idle = True
        except asyncio.IncompleteReadError:
            return

    async def receive(self, kind: int) -> bytes:
        """Return the payload of the next frame of a kind, skipping others; NodeError if the runner ends first."""
        try:
            while (frame := await self._read_frame()).kind != kind:
                pass
        except asyncio.IncompleteReadError as error:
            raise self._error(await self.end_reason()) from error
        return frame.payload

    async def _keep_alive(self) -> None:
        """Send heartbeats; close the connection if the runner sends none."""
        while True:
            # Sleep first: the connection itself counts as the first heartbeat.
            await asyncio.sleep(HEARTBEAT_INTERVAL_S)
            if self._process.has_ended():
                return
            if not self._stdin.is_closing():
                self._stdin.write(HEARTBEAT)
            since = self._reading_since
            if since is not None and asyncio.get_running_loop().time() - since > HEARTBEAT_TIMEOUT_S:
                self._timed_out = True
                self._process.kill()

    async def _read_frame(self) -> Frame:
        # Do not count the time during which a slow reader of our output prevents us from reading.
        self._reading_since = asyncio.get_running_loop().time()
        try:
            return await self._receive_frame()
        finally:
            self._reading_since = None

    async def _receive_frame(self) -> Frame:
        kind, process, size = HEADER.unpack(await self._stdout.readexactly(HEADER.size))
        if kind not in FRAME_TYPES or size > MAX_PAYLOAD:
            raise self._error(f"sent an invalid frame (kind {kind}, {size} bytes)")
        payload = await self._stdout.readexactly(size)
        return Frame(kind=kind, process=process, payload=payload)

    def request_stop(self) -> None:
        """Ask the runner to end its ranks; its frames arrive until they have ended."""
        self._stdin.close()

    async def kill(self) -> None:
        """Kill the local ssh process, which also ends the node's ranks, and wait up to EXIT_TIMEOUT_S for its end."""
        self._process.kill()
        if not self._process.has_ended():
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._process.wait(), EXIT_TIMEOUT_S)
        self.release()

    def release(self) -> None:
        """Close our ends of the pipes; a process that inherited them keeps the runner alive."""
        if self._heartbeats is not None:
            self._heartbeats.cancel()
        self._stderr_tail.stop()
        if self._reading is not None:
            self._reading.close()
            self._reading = None
            writing = self._stdin.transport
            if writing.get_write_buffer_size() or not writing.is_closing():
                writing.abort()
        self._process.close()

    def idle_process(self) -> PipedProcess | None:
        """Return the idle runner's process for a later launch, or None if its job did not end cleanly."""
        is_clean = self.is_idle and not self._stdin.is_closing() and not self._process.has_ended()
        return self._process if is_clean and not self._stdout.at_eof() else None

    def _error(self, cause: str, *, kind: str = ErrorKind.OTHER) -> NodeError:
        return NodeError(str(self.host), cause, kind=kind)

    async def _end_error(self, *, output: bytes = b"") -> NodeError:
        """Return the error of a connection that ended before the runner was ready."""
        reason = await self.end_reason(output=output)
        has_message = bool(self._stderr_tail.last_line() or last_line(output))
        is_silent = self._process.returncode == SSH_FAILED_EXIT_CODE and not has_message
        return self._error(reason, kind=ErrorKind.SILENT_SSH if is_silent else error_kind(reason))

    async def end_reason(self, *, output: bytes = b"") -> str:
        """Return why the connection ended: the last line on stderr of ssh or the runner, or else of `output`."""
        if self._timed_out:
            return f"silent for {HEARTBEAT_TIMEOUT_S:g} s"
        # A program that ssh started may keep its stderr open.
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.gather(self._process.wait(), self._stderr_tail.ended.wait()), EXIT_TIMEOUT_S)
        if last := self._stderr_tail.last_line() or last_line(output):
            return last
        code = self._process.returncode
        return "connection ended" if code is None else f"connection ended with code {code}"
