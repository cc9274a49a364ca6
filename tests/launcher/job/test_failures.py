"""Test failing jobs: reason, exit code, and that no process starts or remains."""

import dataclasses
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from launcher.job.connect import KEX_ADVICE
from launcher.paths import JOBS_DIR
from launcher.transport.protocol import PROTOCOL_VERSION
from tests.launcher.loopback_cluster import ADDRESSES, LoopbackCluster, change_constants, copy_launcher, wait_until_gone

FIRST, SECOND, THIRD = ADDRESSES
OUT_OF_MEMORY = ": killed (SIGKILL), often out of memory"
NO_KEY = "Host key verification failed."


def test_node_of_another_release_is_refused(cluster: LoopbackCluster) -> None:
    old = cluster.write_program("ssh", "printf '\\0deeplearning-runner 1\\n'; exec sleep 1000")
    path = f"{old.parent}:{cluster.environment['PATH']}"
    result = cluster.run("true", hosts=[FIRST, SECOND], environment={"PATH": path})
    assert result.code == 1
    assert result.reason == (
        f"launch: cannot reach 1 of 2 nodes, nothing started: {SECOND}: its runner speaks version 1 "
        f"and not {PROTOCOL_VERSION}"
    )


@pytest.mark.parametrize("code", [1, 2, 77, 255])
def test_first_failing_ranks_exit_code_is_the_jobs(cluster: LoopbackCluster, code: int) -> None:
    result = cluster.run(f"if [ $RANK = 1 ]; then echo broken >&2; exit {code}; fi; sleep 1000")
    assert result.code == code
    assert result.reason == f"launch: {SECOND}: rank 1 ended with exit code {code}"
    shown = f"{SECOND} [0] broken\nlaunch: full log: {SECOND}:~/{JOBS_DIR}/"
    assert (shown in result.stderr.decode(), result.stderr.count(b"broken")) == (True, 1)


def test_killed_rank_has_a_shells_exit_code(cluster: LoopbackCluster) -> None:
    result = cluster.run("[ $RANK != 2 ] || kill -9 $$; sleep 1000")
    assert result.code == 137
    assert result.reason == f"launch: {THIRD}: rank 2 ended with exit code 137{OUT_OF_MEMORY}"


def test_command_that_is_not_found_exits_with_127(cluster: LoopbackCluster) -> None:
    result = cluster.run("no-such-program", "--option")
    assert result.code == 127
    assert b"no-such-program: command not found" in result.stderr
    assert "ended with exit code 127" in result.reason


def test_command_that_is_not_executable_exits_with_126(cluster: LoopbackCluster) -> None:
    result = cluster.run("/etc/passwd", "x")
    assert result.code == 126


def test_nothing_starts_if_a_node_is_unreachable(cluster: LoopbackCluster) -> None:
    touched = cluster.directory / "touched"
    result = cluster.run(f"touch {touched}", hosts=[FIRST, SECOND, "127.0.0.77"])
    assert result.code == 1
    assert "cannot reach 1 of 3 nodes, nothing started: 127.0.0.77: " in result.reason
    assert "Connection refused" in result.reason
    assert not touched.exists()


SILENT_HOST = "127.0.0.78"
"""Address of a host that never answers, as if behind a security group."""


@pytest.fixture
def full_backlog(nodes: Path) -> Iterator[None]:
    """Listen with a full backlog: the kernel then drops further connection requests."""
    [port] = set(re.findall(r"Port (\d+)", (nodes / "ssh_config").read_text()))
    with ExitStack() as sockets:
        listener = sockets.enter_context(socket.create_server((SILENT_HOST, int(port)), backlog=0))
        while True:
            waiting = sockets.enter_context(socket.socket())
            waiting.settimeout(1)
            try:
                waiting.connect(listener.getsockname())
            except TimeoutError:
                break
        yield


def with_timeout(cluster: LoopbackCluster, tmp_path: Path, *, constant: str, seconds: int) -> LoopbackCluster:
    """Copy the launcher, with another deadline."""
    launcher = copy_launcher(tmp_path / "short-timeout")
    change_constants(launcher, {constant: seconds})
    return dataclasses.replace(cluster, launcher=launcher)


@pytest.mark.usefixtures("full_backlog")
def test_nothing_starts_if_a_host_drops_all_packets(cluster: LoopbackCluster, tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    short_timeout_cluster = with_timeout(cluster, tmp_path, constant="transport/ssh.CONNECT_TIMEOUT_S", seconds=2)
    result = short_timeout_cluster.run(f"touch {touched}", hosts=[FIRST, SILENT_HOST])
    assert result.code == 1
    reason = (
        f"launch: cannot reach 1 of 2 nodes, nothing started: {SILENT_HOST}: ssh: connect to host {SILENT_HOST} port "
    )
    assert result.reason.startswith(reason)
    assert result.reason.endswith("Connection timed out")
    assert not touched.exists()


def test_nothing_starts_if_a_host_accepts_and_never_answers(
    cluster: LoopbackCluster, nodes: Path, tmp_path: Path
) -> None:
    touched, pids = tmp_path / "touched", tmp_path / "pids"
    hangs = f"echo $$ >> {pids}; exec sleep 1000"
    ssh = cluster.write_program("ssh", f'case "$*" in *" {THIRD} "*) {hangs};; esac; exec {nodes}/bin/ssh "$@"')
    # Long enough for the first node's runner on a busy machine.
    short_timeout_cluster = with_timeout(cluster, tmp_path, constant="job/connect.READY_TIMEOUT_S", seconds=10)
    path = f"{ssh.parent}:{cluster.environment['PATH']}"
    result = short_timeout_cluster.run(f"touch {touched}", hosts=[FIRST, THIRD], environment={"PATH": path})
    assert result.code == 1
    assert result.reason == f"launch: cannot reach 1 of 2 nodes, nothing started: {THIRD}: no answer within 10 s"
    assert not touched.exists()
    wait_until_gone([int(pid) for pid in pids.read_text().split()], seconds=60)


def test_unknown_host_key_is_reported_with_its_node(cluster: LoopbackCluster, nodes: Path) -> None:
    known = nodes / "known_hosts"
    kept = known.read_text()
    known.write_text("".join(line for line in kept.splitlines(True) if SECOND not in line))
    try:
        result = cluster.run("true")
    finally:
        known.write_text(kept)
    assert result.code == 1
    assert result.reason == f"launch: cannot reach 1 of 3 nodes, nothing started: {SECOND}: {NO_KEY}"


def test_error_for_localhost_names_this_machines_host_name(cluster: LoopbackCluster) -> None:
    ssh = cluster.write_program("ssh", "echo 'Host key verification failed.' >&2; exit 255")
    path = f"{ssh.parent}:{cluster.environment['PATH']}"
    result = cluster.run("true", hosts=[FIRST, "localhost"], environment={"PATH": path})
    assert result.code == 1
    advice = f"No key is known for that name: use its host name instead, for example {socket.gethostname()}"
    assert result.reason == f"launch: cannot reach 1 of 2 nodes, nothing started: localhost: {NO_KEY} {advice}"


def test_denied_logins_are_reported_with_their_nodes(cluster: LoopbackCluster, nodes: Path) -> None:
    path = cluster.path_with_ssh(nodes, "Host 127.*\n  User no-such-user\n")
    result = cluster.run("true", environment={"PATH": path})
    assert result.code == 1
    assert result.reason.startswith("launch: cannot reach 2 of 3 nodes, nothing started: ")
    assert f"{SECOND}: no-such-user@{SECOND}: Permission denied (publickey" in result.reason


def test_background_process_of_ssh_does_not_delay_the_job(cluster: LoopbackCluster, nodes: Path) -> None:
    # A shared connection (ControlPersist) keeps ssh's standard error open.
    sharing = cluster.write_program("ssh", f'sleep 20 >/dev/null </dev/null &\nexec {nodes}/bin/ssh "$@"')
    path = f"{sharing.parent}:{cluster.environment['PATH']}"
    result = cluster.run("echo hello", hosts=[FIRST, SECOND], environment={"PATH": path})
    assert result.lines == [f"{host} [0] hello" for host in (FIRST, SECOND)]
    assert (result.code, result.stderr) == (0, b"")


def test_error_without_a_common_key_exchange_names_one_to_allow(cluster: LoopbackCluster) -> None:
    output = "Unable to negotiate with 10.0.0.7 port 22: no matching key exchange method found. Their offer: curve25519"
    # OpenSSH prints this only at its default log level.
    ssh = cluster.write_program("ssh", f"case $* in *LogLevel=INFO*) echo '{output}' >&2;; esac; exit 255")
    path = f"{ssh.parent}:{cluster.environment['PATH']}"
    # Only between the cluster's nodes does launch choose it; a restart would not help.
    hosts = [FIRST, "deeplearning-worker7", SECOND]
    result = cluster.run("--max-restarts", "9", "true", hosts=hosts, environment={"PATH": path})
    own, other = result.reason.split("; 127.0.0.2: ")
    assert (result.code, other) == (1, output)
    assert own.endswith(f"worker7: {output}{KEX_ADVICE}")
    assert "ecdh-sha2-nistp256" in own


def test_unresolvable_name_is_reported_in_one_line(cluster: LoopbackCluster) -> None:
    result = cluster.run("true", hosts=["no-such-host.invalid", SECOND])
    assert result.code == 1
    assert result.reason.startswith(
        "launch: cannot reach 1 of 2 nodes, nothing started: no-such-host.invalid: ssh: Could not "
    )
    assert result.stderr.count(b"\n") == 1


def test_lost_connection_ends_the_job_with_the_lost_node(cluster: LoopbackCluster) -> None:
    # The rank's parent is the runner; to the master, its end looks like a lost node.
    result = cluster.run("if [ $RANK = 2 ]; then kill -9 $PPID; fi; sleep 1000")
    assert result.code == 1
    assert result.reason.startswith(f"launch: {THIRD}: lost: ")
