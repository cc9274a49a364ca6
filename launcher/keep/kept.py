"""Idle connections on their way from one launch to the next, by a process that keeps them in between.

Each launch that has some to leave starts a keeper of its own (launcher.keep.keeper), which listens on a socket in the
user's runtime directory; the next launch takes from all of them what leads to its hosts. Where anything of this fails,
there is nothing to take, and nothing is left: a connection is opened in some tens of milliseconds.
"""

import json
import os
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from launcher.keep.keeper import FDS, LONGEST, NAME
from launcher.process import Process

ANSWER_S = 0.5
"""For one keeper's answer; it has nothing else to do."""
PROGRAM = Path(__file__).parent / "keeper.py"
CREDENTIALS = struct.Struct("3i")
"""SO_PEERCRED of unix(7): process, user, group."""
MOST_KEPT = 200
"""Connections, of four descriptors each: most systems let a process have 1024."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """An idle runner's process, and what it was connected by."""

    host: str
    situation: str
    process: Process


def take(environ: Mapping[str, str], hosts: Sequence[str] | None) -> list[Kept]:
    """All kept connections to these hosts, or to any; nobody else gets them then."""
    directory = _directory(environ)
    if directory is None:
        return []
    taken: list[Kept] = []
    for place in sorted(directory.glob("*.sock")):
        with suppress(OSError):
            taken += _ask(place, hosts)
    return taken


def leave(environ: Mapping[str, str], kept: Sequence[Kept], *, seconds: float) -> None:
    """Have a new keeper hold the connections for so long; the caller closes its own ends. Raises OSError."""
    directory = _directory(environ)
    if directory is None or not 0 < len(kept) <= MOST_KEPT:
        return
    directory.mkdir(mode=0o700, exist_ok=True)
    place = directory / f"{os.getpid()}-{os.urandom(4).hex()}.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(place))
        try:
            listener.listen()
            _start_keeper(listener.fileno(), place, kept, seconds=seconds)
        except BaseException:
            place.unlink(missing_ok=True)
            raise


def _start_keeper(listener: int, place: Path, kept: Sequence[Kept], *, seconds: float) -> None:
    fds = [listener, *(fd for one in kept for fd in one.process.fds)]
    entries = [{"host": one.host, "situation": one.situation, "fds": one.process.fds} for one in kept]
    asked = {"listener": listener, "place": str(place), "seconds": seconds, "entries": entries}
    with os.fdopen(os.memfd_create("keeper"), "w+b", 0) as question:
        question.write(json.dumps(asked).encode("ascii"))
        question.seek(0)
        subprocess.Popen(
            [sys.executable or "/usr/bin/python3", "-I", "-S", "-X", "utf8", str(PROGRAM)],
            stdin=question,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=fds,
            cwd="/",
            env={},  # of no use to it
            start_new_session=True,
        )


def _directory(environ: Mapping[str, str]) -> Path | None:
    """Where keepers listen: ours alone, in memory. None where this user has no runtime directory."""
    runtime = Path(environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}")
    directory = runtime / NAME
    for place in (runtime, directory):
        try:
            found = place.lstat()
        except FileNotFoundError:
            if place is runtime:
                return None
            continue
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            return None
    return directory


def _ask(place: Path, hosts: Sequence[str] | None) -> list[Kept]:
    """What one keeper has. Raises OSError."""
    taken: list[Kept] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel:
        channel.settimeout(ANSWER_S)
        try:
            channel.connect(str(place))
        except ConnectionRefusedError:
            # It was killed.
            place.unlink(missing_ok=True)
            return []
        _, user, _ = CREDENTIALS.unpack(channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
        if user != os.getuid():
            return []
        channel.send(json.dumps(hosts).encode("ascii"))
        with suppress(TimeoutError, socket.timeout):
            while True:
                said, fds, _, _ = socket.recv_fds(channel, LONGEST, FDS)
                if not said:
                    break
                entry = json.loads(said)
                for fd in fds:
                    os.set_inheritable(fd, False)
                taken.append(Kept(host=entry["host"], situation=entry["situation"], process=Process(fds)))
    return taken
