"""Send the launcher's directory, and prefixes of buckets, to all nodes of a job before it starts.

Every node reports the files that it lacks. The nodes that lack some form a chain: the launcher sends each file once, to
the first node, and every node forwards what later nodes lack while it receives. See docs/decisions/014.
"""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from launcher.errors import LaunchError, UsageError
from launcher.output.notes import note
from launcher.output.sink import Sink
from launcher.sync.all_nodes import Deadline, run_on_all
from launcher.sync.certificate import new_sync_key
from launcher.sync.fetching import fetch_on_all
from launcher.sync.ignore import Ignore, read_ignore
from launcher.sync.manifest import Manifest, scan
from launcher.sync.progress import Progress, megabytes, plural, show_progress
from launcher.sync.request import (
    IGNORE_FILE,
    KEEP,
    KEEP_RESULTS,
    OVERWRITE,
    REFUSE,
    SyncRequest,
    destination_path,
)
from launcher.sync.stream import SourceStream
from launcher.transport.connection import RunnerConnection
from launcher.transport.messages import Answer, data_piece, from_ranges, request_line, to_ranges
from launcher.transport.rpc import call, receive_answer

SHOWN = 3
"""Number of changed files, and of nodes per file, that an error names."""
MAX_SCANS = 3
"""Number of scans of a source that changes while it is being sent."""


async def sync(
    connections: Sequence[RunnerConnection],
    addresses: Sequence[str],
    request: SyncRequest,
    *,
    source: Path,
    first_is_local: bool,
    is_restart: bool = False,
    stderr: Sink,
) -> str | None:
    """Sync all requested files to every node, or raise LaunchError; return the digest of the source's state.

    `addresses` are the nodes' addresses for each other; `first_is_local` means that the first node is this machine. On
    a restart, the nodes keep the files that the job has changed.
    """
    deadline, digest = Deadline.after(request.timeout_s), None
    if request.directory is not None:
        keeps_changed_files = is_restart or request.keeps_changed_files
        directory_sync = _DirectorySync(
            connections=connections,
            addresses=addresses,
            directory=request.directory,
            excludes=request.excludes,
            on_changed=KEEP if keeps_changed_files else OVERWRITE if request.overwrites else REFUSE,
            source=source,
            local=connections[0] if first_is_local else None,
            stderr=stderr,
            deadline=deadline,
        )
        digest = await directory_sync.send_until_unchanged()
    for fetch in request.fetches:
        await fetch_on_all(connections, fetch, deadline=deadline, stderr=stderr)
    return digest


@dataclass(kw_only=True, slots=True)
class _Member:
    """A node that lacks files."""

    connection: RunnerConnection
    address: str
    port: int
    needed: set[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class _DirectorySync:
    """Copy of the launcher's directory to a directory of each node."""

    connections: Sequence[RunnerConnection]
    addresses: Sequence[str]
    directory: str
    excludes: Sequence[str]
    on_changed: str
    """REFUSE, KEEP or OVERWRITE. If the job also runs in the source itself, REFUSE becomes KEEP_RESULTS."""
    source: Path
    local: RunnerConnection | None
    """Connection of the node on this machine."""
    stderr: Sink
    deadline: Deadline

    async def send_until_unchanged(self) -> str:
        """Send until a pass finds the source unchanged."""
        excluded_directory = self._within_source() if self.local else None
        on_changed = KEEP_RESULTS if self.on_changed == REFUSE and self._is_in_place() else self.on_changed
        for _ in range(MAX_SCANS):
            ignore = read_ignore(self.source, excludes=self.excludes)
            manifest = await self._scan(ignore, excluded_directory)
            answers = await self._compare(manifest, ignore, on_changed)
            chain = self._chain(answers, manifest)
            changed = await self._send(manifest, chain) if chain else []
            if not changed:
                await self._name_kept(answers)
                return manifest.digest
        raise LaunchError(f"nothing started: {self.source / changed[0]} keeps changing; exclude it (--sync-exclude)")

    async def _scan(self, ignore: Ignore, excluded_directory: Path | None) -> Manifest:
        stopped = threading.Event()
        try:
            scan_source = partial(
                scan, self.source, ignore=ignore, excluded_directory=excluded_directory, is_stopped=stopped.is_set
            )
            return await asyncio.to_thread(scan_source)
        finally:
            # Otherwise a cancelled task would wait for the thread: minutes for a directory of millions of files.
            stopped.set()

    def _within_source(self) -> Path | None:
        """Return the destination on this machine, to exclude it, if it lies in the source."""
        path, source = destination_path(self.directory, home=Path.home()).resolve(), self.source.resolve()
        if path in source.parents:
            meant = f"{self.directory!r}, which is {path}"
            raise UsageError(f"--sync-dst-dir must not be above the current directory, got {meant}")
        return self.source / path.relative_to(source) if source in path.parents else None

    def _is_in_place(self) -> bool:
        """Return True if the job on this machine runs in the source itself."""
        path = destination_path(self.directory, home=Path.home())
        return self.local is not None and path.resolve() == self.source.resolve()

    async def _compare(self, manifest: Manifest, ignore: Ignore, on_changed: str) -> list[Answer]:
        """Return what each node lacks."""
        compare = partial(
            call,
            operation="compare",
            directory=self.directory,
            manifest=manifest.pack(),
            patterns=ignore.patterns,
            on_changed=on_changed,
        )

        async def compare_one(connection: RunnerConnection) -> Answer:
            return await compare(connection, source=str(self.source) if connection is self.local else None)

        answers = await run_on_all(self.connections, compare_one, deadline=self.deadline)
        self._refuse_changed(answers)
        return answers

    def _chain(self, answers: Sequence[Answer], manifest: Manifest) -> list[_Member]:
        """Return the nodes that lack files. The nodes that lack most come first, so that they can serve the others."""
        members = [
            _Member(connection=connection, address=address, port=answer["port"], needed=from_ranges(answer["needed"]))
            for connection, address, answer in zip(self.connections, self.addresses, answers, strict=True)
            if answer["needed"]
        ]
        return sorted(members, key=lambda member: -manifest.total_size(member.needed))

    def _refuse_changed(self, answers: Sequence[Answer]) -> None:
        """Raise LaunchError if the copy would overwrite files that were changed on a node."""
        if named := self._named("changed", answers):
            raise LaunchError(
                f"nothing started: the copy to {self.directory} would overwrite files that were changed there: "
                f"{named}; pull them into this directory, exclude them in {IGNORE_FILE}, or give --sync-overwrite"
            )

    async def _name_kept(self, answers: Sequence[Answer]) -> None:
        """Name the nodes' results that stay although this directory has other files of the same names."""
        if named := self._named("kept", answers):
            text = f"results of earlier jobs stay as they are there: {named}; --sync-overwrite replaces them"
            await self.stderr.send(note(text))

    def _named(self, key: str, answers: Sequence[Answer]) -> str:
        hosts: dict[str, list[str]] = {}
        for connection, answer in zip(self.connections, answers, strict=True):
            for path in answer.get(key, ()):
                hosts.setdefault(path, []).append(str(connection.host))
        return _join_first(
            [f"{path!r} on {_join_first(names)}" for path, names in sorted(hosts.items())], separator="; "
        )

    async def _send(self, manifest: Manifest, chain: Sequence[_Member]) -> list[str]:
        """Send the missing files; return the files that changed in the meantime."""
        needs = needed_from_here(chain)
        size = manifest.total_size(needs[0])
        progress = Progress(size, nodes=len(chain))
        stream = SourceStream(self.source, manifest, sorted(needs[0]))
        identity = await asyncio.to_thread(new_sync_key) if len(chain) > 1 else ""
        requests = receive_requests(chain, needs, identity=identity)

        async def transfer(connection: RunnerConnection) -> None:
            await connection.send(requests[connection])
            answer = asyncio.create_task(receive_answer(connection))
            try:
                if connection is chain[0].connection:
                    await _send_stream(stream, connection, progress, until=answer)
                await answer
            finally:
                answer.cancel()
                await asyncio.gather(answer, return_exceptions=True)

        async with show_progress(progress, self.stderr):
            await run_on_all([member.connection for member in chain], transfer, deadline=self.deadline)
        summary = f"{plural(len(needs[0]), 'file')}, {megabytes(size)}, sent to {plural(len(chain), 'node')}"
        await self.stderr.send(note(f"{summary} in {progress.seconds:.1f} s"))
        return stream.changed


def _join_first(names: Sequence[str], *, separator: str = ", ") -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return separator.join(names[:SHOWN]) + more


def needed_from_here(chain: Sequence[_Member]) -> list[set[int]]:
    """Return for each node of the chain the files that it and later nodes lack."""
    needs: list[set[int]] = []
    for member in reversed(chain):
        needs.insert(0, member.needed | needs[0] if needs else member.needed)
    return needs


def receive_requests(
    chain: Sequence[_Member], needs: Sequence[set[int]], *, identity: str
) -> dict[RunnerConnection, bytes]:
    """Return each node's request to receive: its source, the next node, and the files for the next node."""
    lines = {}
    for index, member in enumerate(chain):
        after = chain[index + 1] if index + 1 < len(chain) else None
        lines[member.connection] = request_line(
            "receive",
            identity=identity,
            first=index == 0,
            following=[str(after.connection.host), after.address, after.port] if after else None,
            forward=to_ranges(needs[index + 1]) if after else [],
        )
    return lines


async def _send_stream(
    stream: SourceStream, connection: RunnerConnection, progress: Progress, *, until: "asyncio.Task[Answer]"
) -> None:
    """Send the stream at the speed of the first node."""
    while not until.done() and (block := await asyncio.to_thread(stream.next_block)):
        sending = asyncio.create_task(connection.send(data_piece(block)))
        try:
            await asyncio.wait({sending, until}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not sending.done():
                sending.cancel()
        if until.done():
            await asyncio.gather(sending, return_exceptions=True)
            return
        await sending
        progress.advance(len(block))
