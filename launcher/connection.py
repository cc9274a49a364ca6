"""One node as the launcher sees it: a runner behind ssh, its frames, its end."""

import asyncio
import json
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from launcher.errors import LaunchError
from launcher.frames import HEADER, LONGEST_PAYLOAD, PREAMBLE, Frame, Kind
from launcher.hosts import Host
from launcher.spec import NodeSpec

READ_LIMIT = 1 << 20
STDERR_LINES = 20


class Connection:
    """A runner that answers. Closing it ends the ranks of its node."""

    def __init__(self, host: Host, process: asyncio.subprocess.Process) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise ValueError("a runner is started with pipes")
        self.host = host
        self.free_port = 0
        self.address: str | None = None
        """Where the node's sshd took the connection."""
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._complaints: deque[str] = deque(maxlen=STDERR_LINES)
        self._complaining = asyncio.create_task(self._collect_complaints(process.stderr))

    @classmethod
    async def open(cls, host: Host, command: Sequence[str], *, deadline_s: float) -> "Connection":
        """Start a runner and wait until it says that it is ready."""
        process = await _spawn(host, command)
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
            await self._stdout.readuntil(PREAMBLE)
            ready = await self._read_frame()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise LaunchError(f"{self.host}: {await self.complaint()}") from error
        values = json.loads(ready.payload)
        self.free_port, self.address = int(values["port"]), values["address"]

    async def start(self, spec: NodeSpec) -> None:
        """Tell the runner what to run."""
        try:
            self._stdin.write(spec.to_line())
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

    async def _read_frame(self) -> Frame:
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
        if self._process.returncode is None:
            # Not Process.kill(): it reaps a process that has just ended, and asyncio, which then cannot,
            # warns on the user's terminal and takes its exit code for 255.
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        self._complaining.cancel()

    async def complaint(self) -> str:
        """Why the connection ended, in ssh's or the runner's own last words."""
        code = await self._process.wait()
        await self._complaining
        return self._complaints[-1] if self._complaints else f"connection ended with code {code}"

    async def _collect_complaints(self, stderr: asyncio.StreamReader) -> None:
        async for line in stderr:
            if text := line.decode(errors="replace").strip():
                self._complaints.append(text)


async def _spawn(host: Host, command: Sequence[str]) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=READ_LIMIT,
            # Ctrl-C in a terminal is for the launcher, which ends the ranks in order.
            start_new_session=True,
        )
    except OSError as error:
        raise LaunchError(f"{host}: cannot run {command[0]}: {error.strerror}") from error
