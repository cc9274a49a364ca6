"""Test that processes of a job count as leftovers, and processes that wait for the next job do not."""

import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from local.chaos import leftovers
from local.chaos.leftovers import (
    LAUNCHER,
    MAX_IDLE_S,
    POOL_DAEMON,
    TOKEN,
    age_s,
    find_ranks,
    idle_connections,
    leftover_processes,
)

RUNNER = f"/opt/{LAUNCHER.decode()}/runner/__main__.py"
NAMED = "import ctypes, sys; ctypes.CDLL(None).prctl(15, sys.argv[1].encode()); print(flush=True); sys.stdin.read()"


@contextmanager
def running(*args: str, environment: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program that prints a line once it is running, and ends with its input."""
    program = [*args]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def is_listed(process: "subprocess.Popen[bytes]", token: str = "none") -> bool:
    return any(line.startswith(f"{process.pid} ") for line in leftover_processes(token))


def named(name: str, *args: str) -> Sequence[str]:
    return [sys.executable, "-c", NAMED, name, *args]


def test_only_a_working_runner_belongs_to_a_job() -> None:
    with running(*named("launch-idle", RUNNER)) as idle, running(*named("launch-runner", RUNNER)) as working:
        assert not is_listed(idle)
        assert is_listed(working)


def test_runner_that_is_idle_for_too_long_is_a_leftover(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(*named("launch-idle", RUNNER)) as idle:
        assert 0 <= age_s(Path("/proc", str(idle.pid))) < MAX_IDLE_S
        monkeypatch.setattr(leftovers, "MAX_IDLE_S", 0.0)
        assert is_listed(idle)


def test_processes_with_a_jobs_mark_are_found_under_any_name() -> None:
    with running(*named("python3"), environment={TOKEN: "abc"}) as rank:
        assert is_listed(rank, "abc")
        assert not is_listed(rank, "abcd")


def test_ranks_started_before_a_moment_are_distinguished() -> None:
    job = secrets.token_hex(8)
    with running(*named("python3"), environment={TOKEN: f"{job}.1"}) as rank:
        [line] = find_ranks(f"{job}.1")
        assert line.startswith(f"{rank.pid} ")
        assert find_ranks(f"{job}.1", before=time.monotonic() + 1) == [line]
        assert find_ranks(f"{job}.1", before=time.monotonic() - 60) == []
        assert find_ranks(f"{job}.2") == []


def test_connection_is_a_leftover_unless_the_pool_daemon_holds_it() -> None:
    ssh = ["bash", "-c", f'exec -a ssh bash -c "echo; read -r _" {RUNNER}']
    with running(*ssh) as connection:
        assert is_listed(connection)
        assert connection.stdin is not None
        daemon = ["bash", "-c", f'exec -a {POOL_DAEMON.decode()} bash -c "echo; read -r _"']
        with subprocess.Popen(
            daemon, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[connection.stdin.fileno()]
        ) as holder:
            assert holder.stdout is not None
            holder.stdout.readline()
            assert not is_listed(connection)
            assert not is_listed(holder)
            assert str(connection.pid) in idle_connections()
            holder.kill()
            holder.wait()
            assert is_listed(connection)
