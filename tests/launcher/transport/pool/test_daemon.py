"""Test the process that keeps connections, and to which launches it gives them."""

import os
import signal
import socket
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from launcher.peer_credentials import is_same_user
from launcher.transport.pool import client, daemon
from launcher.transport.pool.client import DIRECTORY, IdleConnection, fetch_idle, keep_idle
from launcher.transport.pool.daemon import DaemonConfig, DaemonEntry, PoolDaemon
from launcher.transport.process import PipedProcess


@pytest.fixture
def runtime() -> Iterator[Path]:
    # The path of a socket has at most 108 bytes (unix(7)).
    with TemporaryDirectory(prefix="run-", dir="/tmp") as directory:
        yield Path(directory)


@pytest.fixture(autouse=True)
def long_answer_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow time for a daemon's Python to start, on a machine that may be busy."""
    monkeypatch.setattr(client, "ANSWER_TIMEOUT_S", 60.0)


def idle_connection(host: str) -> tuple[IdleConnection, PipedProcess]:
    process = PipedProcess.start(["cat"])
    return IdleConnection(host=host, fingerprint="abc", process=process), process


def take(environ: dict[str, str], hosts: Sequence[str] = ()) -> IdleConnection:
    """Take the only connection to these hosts; ask again, because a daemon does not wait for a slow client."""
    until = time.monotonic() + 60
    while not (taken := fetch_idle(environ, hosts)):
        assert time.monotonic() < until, "the daemon gives no connection"
    (connection,) = taken
    return connection


def test_daemon_config_is_parsed_as_it_was_written() -> None:
    config = DaemonConfig(
        3,
        60.0,
        "/run/a b/x.sock",
        [DaemonEntry("[ü]:22", "ab", (4, 5, 6, 7)), DaemonEntry("n\udcff", "cd", (8, 9, 10, 11))],
    )
    read = DaemonConfig.from_text(config.to_text())
    assert (read.listener, read.seconds, read.socket_path) == (3, 60.0, "/run/a b/x.sock")
    assert [(one.host, one.fingerprint, one.fds) for one in read.entries] == [
        ("[ü]:22", "ab", (4, 5, 6, 7)),
        ("n\udcff", "cd", (8, 9, 10, 11)),
    ]


def test_kept_connection_is_taken_once_by_its_host(runtime: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": str(runtime)}
    both = [idle_connection("one"), idle_connection("zwö")]
    keep_idle(environ, [entry for entry, _ in both], seconds=120)
    for _, process in both:
        process.close()
    assert stat.S_IMODE((runtime / DIRECTORY).stat().st_mode) == 0o700
    taken = take(environ, ["zwö", "three"])
    assert (taken.host, taken.fingerprint) == ("zwö", "abc")
    taken.process.stdin.write(b"hello")
    assert taken.process.stdout.read(5) == b"hello"
    assert fetch_idle(environ, ["zwö"]) == []
    other = take(environ)
    assert other.host == "one"
    for one in (taken, other):
        one.process.discard()


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o710])
def test_connections_are_not_kept_in_a_directory_of_others(runtime: Path, mode: int) -> None:
    runtime.chmod(mode)
    entry, process = idle_connection("one")
    keep_idle({"XDG_RUNTIME_DIR": str(runtime)}, [entry], seconds=120)
    assert [*runtime.iterdir()] == []
    process.discard()


@contextmanager
def struck(runtime: Path, number: signal.Signals) -> Iterator[Path]:
    """Yield the socket of a daemon that has received a signal."""
    (entry, process), (first, its) = idle_connection("one"), idle_connection("first")
    started: list[int] = []
    spawn = os.posix_spawn

    def noted(*arguments: Any, **options: Any) -> int:
        started.append(spawn(*arguments, **options))
        return started[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "posix_spawn", noted)
        keep_idle({"XDG_RUNTIME_DIR": str(runtime)}, [entry, first], seconds=120)
    (place,) = (runtime / DIRECTORY).iterdir()
    (daemon_pid,) = started
    try:
        # Once it has answered, it has started.
        taken = take({"XDG_RUNTIME_DIR": str(runtime)}, ["first"])
        taken.process.close()
        os.kill(daemon_pid, number)
        os.waitid(os.P_PID, daemon_pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
        yield place
    finally:
        os.kill(daemon_pid, signal.SIGKILL)
        os.waitpid(daemon_pid, 0)
        process.discard()
        its.discard()


def test_killed_daemons_socket_is_removed(runtime: Path) -> None:
    with struck(runtime, signal.SIGKILL) as place:
        assert fetch_idle({"XDG_RUNTIME_DIR": str(runtime)}) == []
        assert not place.exists()


def test_stopped_daemon_delays_only_one_launch(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with struck(runtime, signal.SIGSTOP) as place:
        monkeypatch.setattr(client, "ANSWER_TIMEOUT_S", 0.05)
        assert fetch_idle({"XDG_RUNTIME_DIR": str(runtime)}) == []
        assert not place.exists()


def test_slow_daemons_socket_is_not_removed(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ANSWER_TIMEOUT_S", 0.05)
    place = runtime / DIRECTORY / "1.sock"
    place.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(place))
        listener.listen()
        assert fetch_idle({"XDG_RUNTIME_DIR": str(runtime)}) == []
        assert place.exists()


def test_socket_without_a_daemon_is_skipped(runtime: Path) -> None:
    entry, process = idle_connection("one")
    keep_idle({"XDG_RUNTIME_DIR": str(runtime)}, [entry], seconds=120)
    (runtime / DIRECTORY / "0.sock").write_bytes(b"")
    taken = take({"XDG_RUNTIME_DIR": str(runtime)})
    for one in (process, taken.process):
        one.discard()


def test_daemons_socket_appears_once_it_listens(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[list[str]] = []
    monkeypatch.setattr(
        socket.socket, "listen", lambda _: found.append([one.name for one in (runtime / DIRECTORY).glob("*.sock")])
    )
    monkeypatch.setattr(client, "_start_daemon", lambda config: found.append([Path(config.socket_path).name]))
    entry, process = idle_connection("one")
    keep_idle({"XDG_RUNTIME_DIR": str(runtime)}, [entry], seconds=120)
    process.discard()
    assert found == [[], [one.name for one in (runtime / DIRECTORY).iterdir()]]


def test_is_same_user_compares_the_peers_user(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = socket.socketpair()
    with one, other:
        assert is_same_user(one)
        monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
        assert not is_same_user(one)


def test_another_users_daemon_is_skipped(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry, process = idle_connection("one")
    keep_idle({"XDG_RUNTIME_DIR": str(runtime)}, [entry], seconds=120)
    with monkeypatch.context() as patch:
        patch.setattr(client, "is_same_user", lambda _: False)
        assert fetch_idle({"XDG_RUNTIME_DIR": str(runtime)}) == []
    taken = take({"XDG_RUNTIME_DIR": str(runtime)})
    for one in (process, taken.process):
        one.discard()


@pytest.mark.parametrize("ours", [True, False])
def test_daemon_answers_only_its_own_user(runtime: Path, monkeypatch: pytest.MonkeyPatch, ours: bool) -> None:
    monkeypatch.setattr(daemon, "is_same_user", lambda _: ours)
    fds = tuple(os.open(os.devnull, os.O_RDONLY) for _ in range(4))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(runtime / "s"))
        listener.listen()
        keeps = PoolDaemon(listener, [DaemonEntry("one", "abc", fds)])
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel:
            channel.connect(str(runtime / "s"))
            channel.send(b"one")
            keeps._answer()
            if ours:
                assert channel.recv(64) == b"one abc"
    if not ours:
        # It still has them.
        for fd in fds:
            os.close(fd)
