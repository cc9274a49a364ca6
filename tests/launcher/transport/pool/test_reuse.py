"""Test that the next launch reuses the last one's connections, only while they are still valid, and each only once."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.launcher.loopback_cluster import (
    ADDRESSES,
    LoopbackCluster,
    Result,
    change_constants,
    copy_launcher,
    read_lines,
    wait_until_gone,
)

FIRST, SECOND, THIRD = ADDRESSES
AWAY = {SECOND, THIRD}
"""Hosts of the connections; the first node is this machine."""
WHO = "read -r _ _ _ reaper _ < /proc/$PPID/stat; echo $reaper"
"""Prints the id of the process that outlives a job on its node: the runner's reaper."""


@pytest.fixture(scope="session")
def long_timeout_launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the launcher that reuses kept connections even on a busy machine."""
    copy = copy_launcher(tmp_path_factory.mktemp("long-timeouts"))
    change_constants(
        copy,
        {
            "job/supervision.SERVER_EXIT_S": 60.0,
            "transport/connection.WAKE_TIMEOUT_S": 20.0,
            "transport/pool/client.ANSWER_TIMEOUT_S": 20.0,
            "transport/pool/daemon.CLIENT_TIMEOUT_S": 20.0,
        },
    )
    return copy


@pytest.fixture(scope="session")
def keeping_launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the launcher that keeps connections even on a busy machine."""
    copy = copy_launcher(tmp_path_factory.mktemp("keeping"))
    change_constants(copy, {"job/supervision.SERVER_EXIT_S": 60.0, "transport/pool/daemon.CLIENT_TIMEOUT_S": 20.0})
    return copy


@pytest.fixture
def pooling_cluster(cluster_with_runtime_dir: LoopbackCluster, long_timeout_launcher: Path) -> LoopbackCluster:
    """Return the same user, with a launcher that waits longer for kept connections."""
    return replace(cluster_with_runtime_dir, launcher=long_timeout_launcher)


@pytest.fixture
def cluster_with_runtime_dir(cluster: LoopbackCluster) -> Iterator[LoopbackCluster]:
    """Return a user with a runtime directory, in which connections are kept."""
    # The path of a socket has at most 108 bytes (unix(7)), too few for the test's own directory.
    with TemporaryDirectory(prefix="run-", dir="/tmp") as runtime:
        cluster_with_runtime_dir = replace(cluster, environment={**cluster.environment, "XDG_RUNTIME_DIR": runtime})
        yield cluster_with_runtime_dir
        close(cluster_with_runtime_dir)
        # A frozen daemon can no longer be asked.
        for daemon in daemons(cluster_with_runtime_dir):
            with suppress(ProcessLookupError):
                os.kill(daemon, signal.SIGKILL)


def close(cluster: LoopbackCluster) -> bytes:
    command = ["python", str(cluster.launcher), "close"]
    done = subprocess.run(command, env=cluster.environment, capture_output=True, timeout=60, check=True)
    return done.stdout


def reapers(result: Result) -> dict[str, int]:
    """Return the reapers by node; the job has succeeded on each."""
    assert result.code == 0, result.stderr
    return {words[0]: int(words[2]) for words in (line.split() for line in result.lines)}


def child(pid: int) -> int:
    """Return a reaper's child, the runner, idle or working; a launch may end before there is the next one."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if name_of(int(one)) != "launch-reaper":
                return int(one)
        time.sleep(0.01)
    raise AssertionError("the reaper has no child")


def child_name(reaper: int) -> str:
    return name_of(child(reaper))


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def daemons(cluster: LoopbackCluster) -> list[int]:
    """Return the processes that keep this user's connections."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            is_daemon = b"pool/daemon.py" in (entry / "cmdline").read_bytes()
            config = (entry / "fd/0").read_text() if is_daemon else ""
        except OSError:
            continue
        if cluster.environment["XDG_RUNTIME_DIR"] in config:
            found.append(int(entry.name))
    return found


def test_second_launch_reuses_the_connections_of_the_first(pooling_cluster: LoopbackCluster) -> None:
    first = reapers(pooling_cluster.run(WHO))
    second = reapers(pooling_cluster.run(f"{WHO}; sleep 1000 & setsid sleep 1000 &"))
    assert {host for host in ADDRESSES if first[host] == second[host]} == AWAY
    assert pooling_cluster.ranks() == []


def test_idle_runner_has_its_own_process_name(pooling_cluster: LoopbackCluster) -> None:
    ran = reapers(pooling_cluster.run(WHO))
    waiting = [ran[host] for host in AWAY]
    # The reaper gets its name before it has a child again.
    assert {(child_name(reaper), name_of(reaper)) for reaper in waiting} == {("launch-idle", "launch-reaper")}
    with pooling_cluster.start(f"{WHO}; sleep 1000") as launcher:
        working = {int(line.split()[2]) for line in read_lines(launcher.stdout, 3)}
        assert {*waiting} <= working
        assert {(child_name(reaper), name_of(reaper)) for reaper in waiting} == {("launch-runner", "launch-reaper")}


def test_each_job_has_its_own_environment_and_directory(pooling_cluster: LoopbackCluster) -> None:
    pooling_cluster.run("--env", "SECRET:s3cret", "cd /; umask 0; export LEFT=1; echo $SECRET")
    second = pooling_cluster.run(
        "--env", "OTHER:o", "echo $SECRET$LEFT$OTHER $(umask) $PWD", cwd=pooling_cluster.directory
    )
    umask = subprocess.run(["bash", "-c", "umask"], capture_output=True, text=True, check=True).stdout.strip()
    assert second.lines == [f"{host} [0] o {umask} {pooling_cluster.directory}" for host in ADDRESSES]


@pytest.mark.parametrize("interrupted", [False, True])
def test_no_connection_is_kept_after_a_failed_or_interrupted_job(
    pooling_cluster: LoopbackCluster, interrupted: bool
) -> None:
    go = pooling_cluster.directory / "go"
    with pooling_cluster.start(f"{WHO}; until [ -e {go} ]; do sleep 0.05; done; exit 3") as launcher:
        ran = [int(line.split()[2]) for line in read_lines(launcher.stdout, 3)]
        if interrupted:
            launcher.send_signal(signal.SIGINT)
        else:
            go.touch()
        launcher.communicate(timeout=60)
        assert launcher.returncode == (130 if interrupted else 3)
    wait_until_gone(ran, seconds=40)
    assert close(pooling_cluster) == b"0 connections closed\n"


def test_no_connection_is_kept_if_the_variable_is_0(pooling_cluster: LoopbackCluster) -> None:
    ran = reapers(pooling_cluster.run(WHO, environment={"DEEPLEARNING_CONNECTION_IDLE_S": "0"}))
    wait_until_gone([*ran.values()], seconds=40)
    assert close(pooling_cluster) == b"0 connections closed\n"


def test_unused_connection_closes_in_time(pooling_cluster: LoopbackCluster) -> None:
    ran = reapers(pooling_cluster.run(WHO, environment={"DEEPLEARNING_CONNECTION_IDLE_S": "1"}))
    wait_until_gone([*ran.values()], seconds=40)


def test_close_ends_all_kept_connections(pooling_cluster: LoopbackCluster) -> None:
    ran = reapers(pooling_cluster.run(WHO))
    assert close(pooling_cluster) == b"2 connections closed\n"
    wait_until_gone([*ran.values()], seconds=40)


def test_two_launches_at_once_never_share_a_connection(pooling_cluster: LoopbackCluster) -> None:
    kept = reapers(pooling_cluster.run(WHO))
    wait = f"{WHO}; while [ ! -e {pooling_cluster.directory}/go ]; do sleep 0.05; done"
    with pooling_cluster.start(wait) as one, pooling_cluster.start(wait) as other:
        ones, others = ({int(line.split()[2]) for line in read_lines(both.stdout, 3)} for both in (one, other))
        (pooling_cluster.directory / "go").touch()
        for both in (one, other):
            both.communicate(timeout=60)
            assert both.returncode == 0
    assert ones.isdisjoint(others)
    assert len(ones) == len(others) == 3
    assert {kept[host] for host in AWAY} <= ones | others


def test_smaller_job_leaves_the_other_connections_open(pooling_cluster: LoopbackCluster) -> None:
    first = reapers(pooling_cluster.run(WHO))
    second = reapers(pooling_cluster.run("-n", "2", WHO))
    assert second[SECOND] == first[SECOND]
    third = reapers(pooling_cluster.run(WHO))
    assert {host for host in ADDRESSES if first[host] == third[host]} == AWAY


def test_node_with_changed_login_files_gets_a_new_connection(pooling_cluster: LoopbackCluster, nodes: Path) -> None:
    first = reapers(pooling_cluster.run(WHO))
    login = nodes / ".bashrc"
    login.write_text("# changed\n")
    try:
        second = reapers(pooling_cluster.run(WHO))
    finally:
        login.unlink()
    assert {second[SECOND], second[THIRD]}.isdisjoint(first.values())


def test_changed_ssh_files_on_this_machine_mean_new_connections(pooling_cluster: LoopbackCluster) -> None:
    first = reapers(pooling_cluster.run(WHO))
    second = reapers(pooling_cluster.run(WHO, environment={"SSH_AUTH_SOCK": "/another"}))
    assert set(first.values()).isdisjoint(second.values())
    # None of the first ones is left for anyone.
    wait_until_gone([*first.values()], seconds=40)


@pytest.mark.parametrize(
    ("victim", "number"),
    [
        ("daemon", signal.SIGKILL),
        ("reaper", signal.SIGKILL),
        ("runner", signal.SIGKILL),
        ("ssh", signal.SIGKILL),
        ("runner", signal.SIGTERM),
    ],
)
def test_job_succeeds_after_its_kept_connections_broke(
    pooling_cluster: LoopbackCluster, victim: str, number: signal.Signals
) -> None:
    first, second = befall(pooling_cluster, victim, number)
    assert (second[THIRD] == first[THIRD]) == (victim != "daemon")


@pytest.mark.parametrize("victim", ["daemon", "runner", "ssh"])
def test_job_does_not_wait_for_a_stopped_runner(
    cluster_with_runtime_dir: LoopbackCluster, keeping_launcher: Path, victim: str
) -> None:
    # Whether an unfrozen process answers in time depends on the machine's load.
    befall(replace(cluster_with_runtime_dir, launcher=keeping_launcher), victim, signal.SIGSTOP)


def befall(cluster: LoopbackCluster, victim: str, number: signal.Signals) -> tuple[dict[str, int], dict[str, int]]:
    """Return the reapers of two jobs, between which a process of the second node's connection gets a signal."""
    first = reapers(cluster.run(WHO))
    (daemon,) = daemons(cluster)
    parts = {"reaper": first[SECOND], "runner": child(first[SECOND]), "ssh": ssh_to(cluster, SECOND), "daemon": daemon}
    os.kill(parts[victim], number)
    try:
        second = reapers(cluster.run(WHO))
        assert set(second) == set(ADDRESSES)
        assert second[SECOND] != first[SECOND]
    finally:
        with suppress(ProcessLookupError):
            os.kill(parts[victim], signal.SIGCONT)
    wait_until_gone([first[SECOND]], seconds=40)
    return first, second


def ssh_to(cluster: LoopbackCluster, host: str) -> int:
    """Return the process id of this user's ssh that leads to a host."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        if host.encode() in words and words[0].endswith(b"ssh") and f"HOME={cluster.directory}".encode() in environment:
            return int(entry.name)
    raise AssertionError(f"no ssh to {host}")


def test_kept_connection_holds_no_descriptor_of_the_caller(pooling_cluster: LoopbackCluster, tmp_path: Path) -> None:
    flock = ["flock", "--nonblock", str(tmp_path / "lock")]
    launch = ["python", str(pooling_cluster.launcher), "-H", str(pooling_cluster.write_hosts_file(ADDRESSES)), "true"]
    subprocess.run([*flock, *launch], env=pooling_cluster.environment, timeout=60, check=True)
    assert daemons(pooling_cluster)
    subprocess.run([*flock, "true"], timeout=60, check=True)
