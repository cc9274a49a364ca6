"""Test that a job leaves nothing behind, however it ends."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from launcher.transport.protocol import HEARTBEAT_TIMEOUT_S
from tests.launcher.loopback_cluster import ADDRESSES, LAUNCHER, LoopbackCluster, parent, read_lines, wait_until_gone

FIRST, SECOND, THIRD = ADDRESSES
STUBBORN = "trap '' TERM; sleep 1000 & setsid sleep 1000 & echo up; wait; sleep 1000"
CALM = "sleep 1000 & setsid sleep 1000 & echo up; wait"


@pytest.mark.parametrize("host", [FIRST, SECOND])
@pytest.mark.parametrize(("reaper", "code"), [(False, 1), (True, 143)])
def test_killed_part_of_the_runner_leaves_no_process(
    cluster: LoopbackCluster, host: str, reaper: bool, code: int
) -> None:
    with cluster.start(f"echo $PPID; {CALM}", hosts=[FIRST, SECOND]) as launcher:
        lines = [line.split() for line in read_lines(launcher.stdout, 4)]
        ranks = cluster.ranks()
        runner = next(int(words[2]) for words in lines if words[0] == host and words[2] != "up")
        os.kill(parent(runner) if reaper else runner, signal.SIGKILL)
        launcher.communicate(timeout=60)
        # Without its reaper, the runner stops its rank cleanly.
        assert launcher.returncode == code
        wait_until_gone(ranks, seconds=60)


def test_pkill_of_python_on_every_host_ends_the_job(cluster: LoopbackCluster) -> None:
    with cluster.start("echo $$ $PPID; exec python -c 'import time; time.sleep(1000)'") as launcher:
        lines = [line.split() for line in read_lines(launcher.stdout, 3)]
        ranks = cluster.ranks()
        # Like `pkill -f python` on each host: the rank, its runner and the runner's reaper get TERM.
        pids = [[int(rank), int(runner), parent(int(runner))] for _, _, rank, runner in lines]
        for pid in (pid for host in pids for pid in host):
            # The end of one host's processes may already have ended the others.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        launcher.communicate(timeout=60)
        assert launcher.returncode == 143
        wait_until_gone(ranks, seconds=60)


def test_no_process_is_left_when_the_launcher_is_killed(cluster: LoopbackCluster) -> None:
    with cluster.start("--nproc-per-node", "2", CALM) as launcher:
        read_lines(launcher.stdout, 6)
        ranks = cluster.ranks()
        assert len(ranks) >= 6
        launcher.kill()
        # Earlier than without heartbeats.
        wait_until_gone(ranks, seconds=HEARTBEAT_TIMEOUT_S - 2)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signal_ends_the_job_everywhere(cluster: LoopbackCluster, number: signal.Signals, code: int) -> None:
    with cluster.start(CALM) as launcher:
        read_lines(launcher.stdout, 3)
        launcher.send_signal(number)
        _, stderr = launcher.communicate(timeout=60)
    assert launcher.returncode == code
    assert stderr.decode().splitlines()[-1] == f"launch: stopped by {number.name}"
    assert cluster.ranks() == []


def test_ranks_have_time_to_end_after_term(cluster: LoopbackCluster) -> None:
    save = (
        "import os, signal, sys, time\n"
        "def save(*_):\n    time.sleep(0.5); os.write(1, b'saved'); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save); os.write(1, b'up\\n'); time.sleep(1000)"
    )
    with cluster.start("python", "-c", save) as launcher:
        read_lines(launcher.stdout, 3)
        launcher.terminate()
        stdout, _ = launcher.communicate(timeout=60)
    assert sorted(stdout.decode().splitlines()) == [f"{host} [0] saved" for host in ADDRESSES]
    assert launcher.returncode == 143


def test_shells_child_gets_the_full_grace(cluster: LoopbackCluster) -> None:
    # bash dies from TERM immediately; the program for which it waits must still be able to save.
    save = "trap 'sleep 1; echo saved; exit' TERM; echo up; while :; do sleep 0.1; done"
    with cluster.start("-n", "1", f'bash -c "{save}"; echo never') as launcher:
        read_lines(launcher.stdout, 1)
        launcher.terminate()
        stdout, _ = launcher.communicate(timeout=60)
    assert stdout.decode() == f"{FIRST} [0] saved\n"


def test_ranks_that_ignore_term_are_killed(cluster: LoopbackCluster) -> None:
    with cluster.start("-n", "2", STUBBORN) as launcher:
        read_lines(launcher.stdout, 2)
        launcher.send_signal(signal.SIGINT)
        launcher.communicate(timeout=60)
    assert launcher.returncode == 130
    assert cluster.ranks() == []


def test_processes_left_by_a_finished_rank_end_with_the_job(cluster: LoopbackCluster) -> None:
    away = 'setsid bash -c "kill -USR1 $$; exec sleep 1000"'
    result = cluster.run(f"trap 'exit 0' USR1; sleep 1000 & {away} & wait")
    assert result.code == 0
    assert cluster.ranks() == []


@pytest.mark.parametrize("command", ["while :; do echo y; done", "echo up; sleep 1000"])
def test_job_ends_when_the_reader_of_its_output_closes(cluster: LoopbackCluster, command: str) -> None:
    with cluster.start(command) as launcher:
        assert launcher.stdout is not None
        launcher.stdout.readline()
        launcher.stdout.close()
        assert launcher.wait(60) == 128 + signal.SIGPIPE
        assert launcher.stderr is not None
        assert launcher.stderr.read() == b"launch: cannot write the output any more: Broken pipe\n"
    assert cluster.ranks() == []


@pytest.mark.parametrize("command", ["echo hello; sleep 1000", "echo hello"])
def test_output_that_cannot_be_written_ends_the_job(cluster: LoopbackCluster, command: str) -> None:
    hosts = cluster.write_hosts_file(ADDRESSES[:1])
    launch = [sys.executable, str(LAUNCHER), "-H", str(hosts), "--env", f"STRAY_TOKEN:{cluster.token}"]
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [*launch, command],
            env=cluster.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert ended.returncode == 128 + signal.SIGPIPE
    assert ended.stderr == b"launch: cannot write the output any more: No space left on device\n"
