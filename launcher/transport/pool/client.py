"""Hand idle connections to the pool's daemon, and take them out in the next launch.

Each launch that keeps connections starts a daemon (launcher.transport.pool.daemon), which listens on a socket in the
user's runtime directory. The next launch asks all of these daemons for connections to its hosts. After any error,
nothing is kept or reused: opening a new connection takes only tens of milliseconds.
"""

import os
import socket
import stat
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from launcher.peer_credentials import is_same_user, process_id
from launcher.transport.pool.daemon import FDS, MAX_MESSAGE, DaemonConfig, DaemonEntry
from launcher.transport.process import PipedProcess

SUFFIX = ".sock"
DIRECTORY = "deeplearning-launch"
"""Directory below the user's runtime directory (pam_systemd(8))."""
ANSWER_TIMEOUT_S = 0.5
"""Timeout for a daemon's answer, in seconds; the daemon does nothing else."""
PROGRAM = Path(__file__).parent / "daemon.py"
MAX_CONNECTIONS = 200
"""Maximum number of connections per daemon, with four descriptors each: the usual limit of a process is 1024."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IdleConnection:
    """An idle runner's process and the fingerprint of its connection."""

    host: str
    fingerprint: str
    process: PipedProcess


def fetch_idle(environ: Mapping[str, str], hosts: Sequence[str] = ()) -> list[IdleConnection]:
    """Take all kept connections to these hosts, or to any host; no other launch gets them."""
    directory = _directory(environ)
    if directory is None:
        return []
    taken: list[IdleConnection] = []
    for socket_path in sorted(directory.glob(f"*{SUFFIX}")):
        with suppress(OSError, ValueError):  # A daemon of another release may answer otherwise.
            taken += _request(socket_path, hosts)
    return taken


def close_idle(environ: Mapping[str, str]) -> int:
    """Close all kept connections and return their number; the runners on their nodes then end."""
    connections = fetch_idle(environ)
    for connection in connections:
        connection.process.discard()
    return len(connections)


def keep_idle(environ: Mapping[str, str], connections: Sequence[IdleConnection], *, seconds: float) -> None:
    """Start a daemon that keeps the connections for `seconds`; the caller closes its own ends. Raises OSError."""
    directory = _directory(environ)
    if directory is None or not 0 < len(connections) <= MAX_CONNECTIONS:
        return
    directory.mkdir(mode=0o700, exist_ok=True)
    socket_path = directory / f"{os.getpid()}-{os.urandom(4).hex()}{SUFFIX}"
    unlisted = socket_path.with_suffix(".new")
    entries = [DaemonEntry(idle.host, idle.fingerprint, idle.process.fds) for idle in connections]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        try:
            listener.bind(str(unlisted))
            listener.listen()
            # Rename only now: another launch would take a socket that refuses connections for a killed daemon's and
            # remove it.
            unlisted.rename(socket_path)
            _start_daemon(DaemonConfig(listener.fileno(), seconds, str(socket_path), entries))
        except OSError:
            for path in (unlisted, socket_path):
                path.unlink(missing_ok=True)
            raise


def _start_daemon(config: DaemonConfig) -> None:
    fds = [config.listener, *(fd for entry in config.entries for fd in entry.fds)]
    program = sys.executable or "/usr/bin/python3"
    with os.fdopen(os.memfd_create("daemon-config"), "w+b", 0) as config_file, Path(os.devnull).open("r+b") as null:
        config_file.write(config.to_text().encode(errors="surrogateescape"))
        config_file.seek(0)
        for fd in fds:
            os.set_inheritable(fd, True)
        try:
            os.posix_spawn(
                program,
                [program, "-I", "-S", "-X", "utf8", str(PROGRAM)],
                {},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, fd, number)
                    for number, fd in enumerate((config_file.fileno(), *[null.fileno()] * 2))
                ],
                setsid=True,
            )
        finally:
            for fd in fds:
                os.set_inheritable(fd, False)


def _directory(environ: Mapping[str, str]) -> Path | None:
    """Return the private, in-memory directory where daemons listen; None if this user has no runtime directory."""
    runtime = Path(environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}")
    directory = runtime / DIRECTORY
    if not _is_private(runtime) or (directory.exists() and not _is_private(directory)):
        return None
    return directory


def _is_private(directory: Path) -> bool:
    try:
        status = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def _request(socket_path: Path, hosts: Sequence[str]) -> list[IdleConnection]:
    """Take the connections of one daemon. Raises OSError if it does not answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel:
        channel.settimeout(ANSWER_TIMEOUT_S)
        try:
            channel.connect(str(socket_path))
        except ConnectionRefusedError:
            # The daemon was killed.
            socket_path.unlink(missing_ok=True)
            return []
        if not is_same_user(channel):
            return []
        channel.send("".join(f"{host}\n" for host in hosts or [""]).encode(errors="surrogateescape"))
        taken: list[IdleConnection] = []
        try:
            while message := _receive(channel):
                taken.append(message)
        except TimeoutError:
            # Received connections are ours; the daemon closes the others on time.
            if _is_stopped(process_id(channel)):
                socket_path.unlink(missing_ok=True)
        except OSError:
            pass
        return taken


def _is_stopped(pid: int) -> bool:
    """Return True if a process is stopped (proc_pid_stat(5)): a slow one will answer, a stopped one will not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in {"T", "t"}
    except OSError:
        return False


def _receive(channel: socket.socket) -> IdleConnection | None:
    data, fds, _, _ = socket.recv_fds(channel, MAX_MESSAGE, FDS)
    if not data:
        return None
    for fd in fds:
        os.set_inheritable(fd, False)
    if len(fds) != FDS:
        for fd in fds:
            os.close(fd)
        raise OSError("more descriptors than this process may have")
    process = PipedProcess(fds)
    try:
        host, fingerprint = data.decode(errors="surrogateescape").split()
    except ValueError:
        process.discard()
        raise
    return IdleConnection(host=host, fingerprint=fingerprint, process=process)
