"""Test that both sides detect a hung or disconnected peer by a deadline, and spare a slow one.

The launcher here is a copy with shorter deadlines.
"""

import dataclasses
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.launcher.loopback_cluster import (
    ADDRESSES,
    SHORT_HEARTBEAT_TIMEOUT_S,
    LoopbackCluster,
    parent,
    read_lines,
    wait_until_gone,
)

FIRST, SECOND, THIRD = ADDRESSES
LONGER_S = int(SHORT_HEARTBEAT_TIMEOUT_S) + 1
"""Seconds after which a peer without heartbeats would count as gone."""


@pytest.fixture
def short_timeout_cluster(cluster: LoopbackCluster, short_timeout_launcher: Path) -> LoopbackCluster:
    return dataclasses.replace(cluster, launcher=short_timeout_launcher)


def name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def sshd_above(pid: int) -> int:
    """Return the sshd process through which a rank's runner communicates."""
    while not name(pid).startswith("sshd"):
        pid = parent(pid)
    return pid


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def ranks_by_host(launcher: "subprocess.Popen[bytes]", hosts: int) -> dict[str, int]:
    """Return the process id of each host's job, from the first line that it prints."""
    lines = [line.split() for line in read_lines(launcher.stdout, hosts)]
    return {words[0]: int(words[2]) for words in lines}


def test_disconnected_node_ends_its_ranks_and_the_job(short_timeout_cluster: LoopbackCluster) -> None:
    with short_timeout_cluster.start("echo $$; sleep 1000 & wait") as launcher:
        ranks = ranks_by_host(launcher, 3)
        everything = short_timeout_cluster.ranks()
        # As with a cut cable, neither side receives anything, and no connection is closed.
        with stopped(sshd_above(ranks[THIRD])):
            _, stderr = launcher.communicate(timeout=60)
            assert launcher.returncode == 1
            # There is one line, with none of asyncio's messages about a broken pipe.
            assert stderr.decode() == f"launch: {THIRD}: lost: silent for {SHORT_HEARTBEAT_TIMEOUT_S:g} s\n"
            wait_until_gone(everything, seconds=60)


def test_hanging_runner_fails_the_job(short_timeout_cluster: LoopbackCluster) -> None:
    with short_timeout_cluster.start("echo $$; sleep 1000") as launcher:
        ranks = ranks_by_host(launcher, 3)
        with stopped(parent(ranks[SECOND])):
            _, stderr = launcher.communicate(timeout=60)
        assert launcher.returncode == 1
        assert f"{SECOND}: lost: silent for".encode() in stderr
        wait_until_gone(list(ranks.values()), seconds=60)


def test_hanging_launcher_leaves_no_rank(short_timeout_cluster: LoopbackCluster) -> None:
    with short_timeout_cluster.start("echo $$; sleep 1000") as launcher:
        ranks = ranks_by_host(launcher, 3)
        with stopped(launcher.pid):
            wait_until_gone(list(ranks.values()), seconds=60)


def test_job_without_output_is_not_ended(short_timeout_cluster: LoopbackCluster) -> None:
    result = short_timeout_cluster.run(f"sleep {LONGER_S}; echo done")
    assert result.lines == [f"{host} [0] done" for host in ADDRESSES]


def test_paused_reader_delays_the_job_without_ending_it(short_timeout_cluster: LoopbackCluster) -> None:
    with short_timeout_cluster.start("seq -f %015.0f 1 655360; echo done") as launcher:
        assert launcher.stdout is not None
        assert os.read(launcher.stdout.fileno(), 1) == b"1"
        # 10 MB per node exceed all buffers on the way.
        time.sleep(LONGER_S)
        assert len(short_timeout_cluster.ranks()) >= 3, (
            "a rank was done before anybody read: something buffers without end"
        )
        stdout, stderr = launcher.communicate(timeout=120)
    assert (launcher.returncode, stderr) == (0, b"")
    assert stdout.count(b"\n") == 3 * 655361


def test_ctrl_z_does_not_stop_the_heartbeats(short_timeout_cluster: LoopbackCluster) -> None:
    with short_timeout_cluster.start(f"echo up; sleep {LONGER_S}; echo done") as launcher:
        read_lines(launcher.stdout, 3)
        launcher.send_signal(signal.SIGTSTP)
        stdout, _ = launcher.communicate(timeout=60)
    assert sorted(stdout.decode().splitlines()) == [f"{host} [0] done" for host in ADDRESSES]
    assert launcher.returncode == 0


def test_node_restarts_once_the_previous_attempt_has_ended(short_timeout_cluster: LoopbackCluster) -> None:
    # A process that ignores TERM there is still running when the others have ended and the job restarts.
    asleep = f"sleep 98766.{uuid.uuid4().int}"
    stubborn = f"echo $$; [ $RANK = 2 ] || exec sleep 1000; trap '' TERM; {asleep} & wait; {asleep}"
    # The nodes here are one machine, on which the others would see it too.
    again = f"[ $RANK != 2 ] || pgrep -xf '{asleep}'; echo again"
    job = f"if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then {stubborn}; else {again}; fi"
    with short_timeout_cluster.start("--max-restarts", "1", "--grace", "5", job) as launcher:
        ranks = ranks_by_host(launcher, 3)
        with stopped(sshd_above(ranks[THIRD])):
            stdout, stderr = launcher.communicate(timeout=120)
    assert sorted(stdout.decode().splitlines()) == [f"{host} [0] again" for host in ADDRESSES], stderr
    assert launcher.returncode == 0


@pytest.mark.parametrize("host", [FIRST, SECOND])
def test_grace_may_exceed_the_heartbeat_timeout(short_timeout_cluster: LoopbackCluster, host: str) -> None:
    trap = f"trap 'sleep {LONGER_S}; echo saved; exit 7' TERM; echo up; while :; do sleep 0.1; done"
    with short_timeout_cluster.start("--grace", "60", trap, hosts=[host]) as launcher:
        read_lines(launcher.stdout, 1)
        launcher.send_signal(signal.SIGINT)
        stdout, _ = launcher.communicate(timeout=90)
    assert (launcher.returncode, stdout) == (130, f"{host} [0] saved\n".encode())
