"""Test jobs on three nodes, two of them behind real sshd processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launcher.loopback_cluster import ADDRESSES, LAUNCHER, LoopbackCluster, read_lines

FIRST, SECOND, THIRD = ADDRESSES
RENDEZVOUS_SCRIPT = """
import os, pathlib, socket, sys, time
name, go = sys.argv[1:]
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
until = time.monotonic() + 120

def wait():
    assert time.monotonic() < until
    time.sleep(0.05)

def name_of_the_leader():
    while True:
        try:
            with socket.create_connection(place) as leader:
                return leader.recv(100).decode()
        except ConnectionRefusedError:
            wait()

server = socket.create_server(place) if os.environ["RANK"] == "0" else None
if server:
    for _ in range(2):
        server.accept()[0].sendall(name.encode())
print("met", name if server else name_of_the_leader(), flush=True)
while not pathlib.Path(go).exists():
    wait()
"""
"""Ranks that print the name of rank 0's job, and wait until a file exists."""


def test_ranks_have_torchrun_variables_and_prefixed_output(cluster: LoopbackCluster) -> None:
    show = "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR"
    result = cluster.run("--nproc-per-node", "2", show)
    assert result.code == 0
    assert result.lines == [
        f"{host} [{local}] {node * 2 + local} {local} 6 2 {node} 127.0.0.1"
        for node, host in enumerate(ADDRESSES)
        for local in (0, 1)
    ]
    assert result.stderr == b""


def test_ranks_share_a_free_port_and_the_route_interface(cluster: LoopbackCluster) -> None:
    result = cluster.run("echo $MASTER_PORT $GLOO_SOCKET_IFNAME $NCCL_SOCKET_IFNAME")
    values = {line.split(" ", 2)[2] for line in result.lines}
    assert len(values) == 1
    port, *interfaces = values.pop().split()
    assert int(port) > 1023
    assert interfaces == ["lo", "lo"]


def test_option_n_takes_the_first_hosts(cluster: LoopbackCluster) -> None:
    result = cluster.run("-n", "2", "echo $WORLD_SIZE")
    assert result.lines == [f"{FIRST} [0] 2", f"{SECOND} [0] 2"]


def test_ranks_start_in_the_launchers_directory(cluster: LoopbackCluster, tmp_path: Path) -> None:
    place = tmp_path / "a place"
    place.mkdir()
    for command in (["pwd"], ["printenv", "PWD"]):
        result = cluster.run(*command, cwd=place)
        assert [line.split("] ")[1] for line in result.lines] == [str(place)] * len(ADDRESSES)


@pytest.mark.parametrize("word", ["two words", "$HOME", "it's", 'say "hi"', "a\nb", "*", "\\n", "ünï", ";id", ""])
def test_arguments_reach_the_command_unchanged(cluster: LoopbackCluster, word: str) -> None:
    echo = "import os, sys; os.write(1, repr(sys.argv[1:]).encode())"
    result = cluster.run("python", "-c", echo, word, "--gpus")
    assert result.lines == [f"{host} [0] {[word, '--gpus']!r}" for host in ADDRESSES]


def test_single_word_is_run_by_the_shell(cluster: LoopbackCluster) -> None:
    result = cluster.run("-n", "1", "A='x  y'; echo \"$A\" | tr x z")
    assert result.lines == [f"{FIRST} [0] z  y"]


def test_variables_of_env_reach_every_rank(cluster: LoopbackCluster) -> None:
    result = cluster.run("--env", "A:b:c d", "--env", "SECRET", 'echo "$A" $SECRET', environment={"SECRET": "s3"})
    assert result.lines == [f"{host} [0] b:c d s3" for host in ADDRESSES]


def test_variables_are_in_no_process_list(cluster: LoopbackCluster) -> None:
    look = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"
    secret = f"hunter2-{os.urandom(8).hex()}"
    result = cluster.run("--env", "SECRET", look, environment={"SECRET": secret})
    assert b"runner" in result.stdout
    assert secret.encode() not in result.stdout


def test_standard_output_and_error_stay_apart(cluster: LoopbackCluster) -> None:
    result = cluster.run("echo out; echo err >&2")
    assert result.lines == [f"{host} [0] out" for host in ADDRESSES]
    assert sorted(result.stderr.decode().splitlines()) == [f"{host} [0] err" for host in ADDRESSES]


def test_unfinished_last_lines_arrive(cluster: LoopbackCluster) -> None:
    result = cluster.run("printf 'no end'")
    assert result.lines == [f"{host} [0] no end" for host in ADDRESSES]


def test_binary_output_arrives_as_it_left(cluster: LoopbackCluster) -> None:
    data = bytes(range(256)) * 1000
    write = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 1000)"
    result = cluster.run("python", "-c", write, hosts=[FIRST, SECOND])
    for host in (FIRST, SECOND):
        prefix = f"{host} [0] ".encode()
        mine = [line[len(prefix) :] for line in result.stdout.split(b"\n") if line.startswith(prefix)]
        assert b"\n".join(mine) == data


def test_hundred_megabytes_of_output_arrive_complete(cluster: LoopbackCluster) -> None:
    lines = 340_000
    result = cluster.run(f"seq -f %099.0f 1 {lines}", timeout=300)
    expected = [b"%099d" % number for number in range(1, lines + 1)]
    assert len(result.stdout) > 3 * 34_000_000
    arrived = result.stdout.splitlines()
    for host in ADDRESSES:
        prefix = f"{host} [0] ".encode()
        assert [line[len(prefix) :] for line in arrived if line.startswith(prefix)] == expected
    assert (result.code, result.stderr) == (0, b"")


def test_output_of_shell_startup_files_is_ignored(cluster: LoopbackCluster, nodes: Path) -> None:
    # The output of a noisy ~/.bashrc on a node arrives on ssh's standard output.
    noisy = cluster.write_program("ssh", f'printf "welcome\\nto the node"\nexec {nodes}/bin/ssh "$@"')
    path = f"{noisy.parent}:{cluster.environment['PATH']}"
    result = cluster.run("echo hello", environment={"PATH": path})
    assert result.lines == [f"{host} [0] hello" for host in ADDRESSES]


# ---- hosts ----


def test_ssh_uses_the_port_in_the_hosts_file(cluster: LoopbackCluster, nodes: Path) -> None:
    port = next(line.split()[1] for line in (nodes / "ssh_config").read_text().splitlines() if "Port" in line)
    assert cluster.run("echo $RANK", hosts=[FIRST, f"{SECOND}:{port}"]).lines == [
        f"{FIRST} [0] 0",
        f"{SECOND}:{port} [0] 1",
    ]
    refused = cluster.run("true", hosts=[FIRST, f"{SECOND}:1"])
    assert refused.code == 1
    assert refused.reason.startswith(
        f"launch: cannot reach 1 of 2 nodes, nothing started: {SECOND}:1: ssh: connect to host"
    )


def test_slots_in_the_hosts_file_set_the_number_of_ranks(cluster: LoopbackCluster) -> None:
    result = cluster.run("echo $RANK of $WORLD_SIZE", hosts=[f"{FIRST} slots=2", SECOND])
    assert result.lines == [f"{FIRST} [0] 0 of 3", f"{FIRST} [1] 1 of 3", f"{SECOND} [0] 2 of 3"]


def test_host_may_be_an_alias_of_sshs_configuration(cluster: LoopbackCluster, nodes: Path) -> None:
    path = cluster.path_with_ssh(nodes, "Host d1 127.*\n  HostName 127.0.0.2\n")
    result = cluster.run("echo $MASTER_ADDR", hosts=["d1"], environment={"PATH": path})
    assert result.lines == ["d1 [0] 127.0.0.2"]
    # ps-lite binds to the address that it receives, so a name would not work.
    servers = cluster.run("-s", "1", "echo $DMLC_NODE_HOST $DMLC_PS_ROOT_URI", hosts=["d1"], environment={"PATH": path})
    assert {line.split("] ")[1] for line in servers.lines} == {"127.0.0.2 127.0.0.2"}


def test_local_job_needs_no_hosts_file_and_no_ssh(cluster: LoopbackCluster) -> None:
    launch = [sys.executable, str(LAUNCHER), "--launcher", "local", "-n", "2", "echo $RANK $MASTER_ADDR"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(cluster.directory)}
    ended = subprocess.run(launch, env=environment, capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert sorted(ended.stdout.splitlines()) == [b"localhost [0] 0 127.0.0.1", b"localhost [1] 1 127.0.0.1"]


def test_parallel_jobs_use_different_ports(cluster: LoopbackCluster, tmp_path: Path) -> None:
    go = tmp_path / "go"
    words = [sys.executable, "-c", RENDEZVOUS_SCRIPT]
    with cluster.start(*words, "one", str(go)) as first, cluster.start(*words, "two", str(go)) as second:
        # All six are running now, and rank 0 of each is listening.
        assert [line.split("] ")[1] for line in read_lines(first.stdout, 3)] == ["met one"] * 3
        assert [line.split("] ")[1] for line in read_lines(second.stdout, 3)] == ["met two"] * 3
        go.touch()
        assert [job.communicate(timeout=60) for job in (first, second)] == [(b"", b"")] * 2
    assert (first.returncode, second.returncode) == (0, 0)


def test_launcher_has_one_thread(cluster: LoopbackCluster) -> None:
    with cluster.start("echo up; sleep 1000") as launcher:
        read_lines(launcher.stdout, 3)
        threads = len(list(Path(f"/proc/{launcher.pid}/task").iterdir()))
        launcher.terminate()
        launcher.communicate(timeout=60)
    assert threads == 1


def test_wrong_command_line_exits_with_2_and_one_line(cluster: LoopbackCluster) -> None:
    result = subprocess.run(
        [sys.executable, str(Path(__file__).parents[3] / "launcher"), "--framework", "caffe", "python"],
        env=cluster.environment | {"DEEPLEARNING_WORKERS_PATH": os.devnull},
        capture_output=True,
        timeout=60,
    )
    assert result.returncode == 2
    assert result.stderr.startswith(b"launch: --framework must be one of ")
    assert result.stderr.count(b"\n") == 1


def test_job_with_a_closed_standard_output_runs(cluster: LoopbackCluster, tmp_path: Path) -> None:
    hosts, seen = cluster.write_hosts_file(ADDRESSES[:1]), tmp_path / "seen"
    launch = [sys.executable, str(LAUNCHER), "-H", str(hosts), "touch", str(seen)]
    closed = ["bash", "-c", 'exec "$@" >&-', "closed", *launch]
    ended = subprocess.run(closed, env=cluster.environment, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert seen.exists()
