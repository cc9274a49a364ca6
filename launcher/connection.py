"""One node as the launcher sees it: a runner behind ssh, its frames, its end."""

import asyncio
import json
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress

from launcher.errors import LaunchError
from launcher.frames import (
    GREETING,
    HEADER,
    LONGEST_PAYLOAD,
    SIGN_OF_LIFE,
    SIGN_OF_LIFE_S,
    SILENCE_S,
    VERSION,
    Frame,
    Kind,
)
from launcher.gpus import GpusInUse
from launcher.hosts import Host
from launcher.spec import NodeSpec

READ_LIMIT = 1 << 20
STDERR_LINES = 20
LAST_WORDS_S = 5.0


class Connection:
    """A runner that answers. Closing it ends the ranks of its node."""

    def __init__(self, host: Host, process: asyncio.subprocess.Process) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise ValueError("a runner is started with pipes")
        self.host = host
        self.free_port = 0
        self.is_here = False
        """Whether it is this machine, reached without ssh."""
        self.address: str | None = None
        """Where the node's sshd took the connection."""
        self.gpus = GpusInUse()
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._complaints: deque[str] = deque(maxlen=STDERR_LINES)
        self._complaining = asyncio.create_task(self._collect_complaints(process.stderr))
        self._waiting_since: float | None = None
        self._silent = False
        self._watching: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        host: Host,
        command: Sequence[str],
        *,
        deadline_s: float,
        environment: Mapping[str, str] | None = None,
    ) -> "Connection":
        """Start a runner and wait until it says that it is ready; `environment` replaces the launcher's own."""
        process = await _spawn(host, command, environment)
        connection = cls(host, process)
        try:
            await asyncio.wait_for(connection._become_ready(), deadline_s)
        except asyncio.TimeoutError as error:
            await connection.kill()
            raise LaunchError(f"{host}: no answer within {deadline_s:g} s") from error
        except BaseException:
            await connection.kill()
            raise
        return connection

    async def _become_ready(self) -> None:
        try:
            await self._stdout.readuntil(GREETING)
            version = (await self._stdout.readline()).decode(errors="replace").strip()
            if version != VERSION:
                # Nodes that came before and after a deploy of new code may have different releases.
                raise LaunchError(f"{self.host}: its runner speaks version {version} and not {VERSION}")
            ready = await self._read_frame()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise LaunchError(f"{self.host}: {await self.complaint()}") from error
        self._watching = asyncio.create_task(self._keep_alive())
        values = json.loads(ready.payload)
        self.free_port, self.address = int(values["port"]), values["address"]
        self.gpus = GpusInUse.from_json(values.get("gpus", {}))

    async def start(self, spec: NodeSpec) -> None:
        """Tell the runner what to run."""
        await self.send(spec.to_line())

    async def send(self, data: bytes) -> None:
        """Send all of `data`, no sign of life in between."""
        try:
            self._stdin.write(data)
            await self._stdin.drain()
        except ConnectionError as error:
            raise LaunchError(f"{self.host}: {await self.complaint()}") from error

    async def frames(self) -> AsyncIterator[Frame]:
        """What the runner reports, until it or the connection ends."""
        try:
            while True:
                yield await self._read_frame()
        except asyncio.IncompleteReadError:
            return

    async def receive(self, kind: Kind) -> bytes:
        """The payload of the next frame of a kind, passing over others; LaunchError when the runner ends instead."""
        try:
            while (frame := await self._read_frame()).kind is not kind:
                pass
        except asyncio.IncompleteReadError as error:
            raise LaunchError(f"{self.host}: {await self.complaint()}") from error
        return frame.payload

    async def _keep_alive(self) -> None:
        """Give signs of life, and end the connection when the runner gives none while it is waited for."""
        while self._process.returncode is None:
            if not self._stdin.is_closing():
                self._stdin.write(SIGN_OF_LIFE)
            await asyncio.sleep(SIGN_OF_LIFE_S)
            since = self._waiting_since
            if since is not None and asyncio.get_running_loop().time() - since > SILENCE_S:
                self._silent = True
                self._kill_process()

    async def _read_frame(self) -> Frame:
        # Not counted is the time in which a slow reader of our own output keeps us from reading.
        self._waiting_since = asyncio.get_running_loop().time()
        try:
            return await self._receive_frame()
        finally:
            self._waiting_since = None

    async def _receive_frame(self) -> Frame:
        kind, process, size = HEADER.unpack(await self._stdout.readexactly(HEADER.size))
        if kind not in set(Kind) or size > LONGEST_PAYLOAD:
            raise LaunchError(f"{self.host}: sent what is not a runner's frame (kind {kind}, {size} bytes)")
        payload = await self._stdout.readexactly(size)
        return Frame(kind=Kind(kind), process=process, payload=payload)

    def close(self) -> None:
        """Tell the runner to end its ranks. Its frames go on until they have ended."""
        self._stdin.close()

    async def kill(self) -> None:
        """Give up waiting: end the connection itself, which also tells the runner."""
        self._kill_process()
        # A program that ssh has started may hold its standard error open, for which asyncio waits too.
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._process.wait(), LAST_WORDS_S)
        # asyncio prints what a write to a process that had just ended came to, unless somebody asks.
        with suppress(OSError, asyncio.TimeoutError):
            await asyncio.wait_for(self._stdin.wait_closed(), LAST_WORDS_S)
        self._complaining.cancel()
        if self._watching is not None:
            self._watching.cancel()
        # Pipes that something else holds open too would be closed when the loop no longer runs, which it complains of.
        self._process._transport.close()  # type: ignore[attr-defined]  # there is no public way

    def _kill_process(self) -> None:
        if self._process.returncode is None:
            # Not Process.kill(): it reaps a process that has just ended, and asyncio, which then cannot,
            # warns on the user's terminal and takes its exit code for 255.
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)

    async def complaint(self) -> str:
        """Why the connection ended, in ssh's or the runner's own last words."""
        if self._silent:
            return f"silent for {SILENCE_S:g} s"
        ended = asyncio.create_task(self._process.wait())
        await asyncio.wait({ended, self._complaining}, timeout=LAST_WORDS_S)
        if self._complaints:
            return self._complaints[-1]
        code = self._process.returncode
        return "connection ended" if code is None else f"connection ended with code {code}"

    async def _collect_complaints(self, stderr: asyncio.StreamReader) -> None:
        async for line in stderr:
            if text := line.decode(errors="replace").strip():
                self._complaints.append(text)


async def _spawn(
    host: Host, command: Sequence[str], environment: Mapping[str, str] | None
) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=READ_LIMIT,
            env=environment,
            # Ctrl-C in a terminal is for the launcher, which ends the ranks in order.
            start_new_session=True,
        )
    except OSError as error:
        raise LaunchError(f"{host}: cannot run {command[0]}: {error.strerror}") from error
