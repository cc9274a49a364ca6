"""Test jobs of each framework on three nodes, two of them behind real sshd processes.

The frameworks themselves are not used: the jobs below meet, serve and end like the frameworks' processes.
"""

import signal
import sys
from pathlib import Path

import pytest

from tests.launcher.loopback_cluster import ADDRESSES, LoopbackCluster, read_lines

FIRST, SECOND, THIRD = ADDRESSES

PARAMETER_SERVERS = """
import os, socket, sys
workers, role = int(os.environ["DMLC_NUM_WORKER"]), os.environ["DMLC_ROLE"]
root = os.environ["DMLC_PS_ROOT_URI"], int(os.environ["DMLC_PS_ROOT_PORT"])
socket.inet_aton(os.environ["DMLC_NODE_HOST"])
if role == "scheduler":
    with socket.create_server(root) as server:
        clients = [server.accept()[0] for _ in range(workers + int(os.environ["DMLC_NUM_SERVER"]))]
        print("all here", len(clients), flush=True)
        for client in clients:
            assert client.recv(1) == b"1"
        for client in clients:
            client.sendall(b"2")
else:
    for _ in range(1200):
        try:
            client = socket.create_connection(root, timeout=60)
            break
        except ConnectionRefusedError:
            import time; time.sleep(0.05)
    print(role, os.environ["DMLC_NODE_HOST"], os.environ.get("PS_VERBOSE"), os.environ["DMLC_INTERFACE"], flush=True)
    client.sendall(b"1")
    assert client.recv(1) == b"2"
"""
"""Processes that meet at the scheduler; no worker ends before all of them have printed."""


def test_scheduler_servers_and_workers_meet_at_addresses(cluster: LoopbackCluster) -> None:
    result = cluster.run("-s", "2", "python", "-c", PARAMETER_SERVERS, environment={"PS_VERBOSE": "1"})
    assert (result.code, result.stderr) == (0, b"")
    assert result.lines == [
        f"{FIRST} [scheduler] all here 5",
        f"{FIRST} [server 0] server {FIRST} 1 lo",
        f"{FIRST} [worker 0] worker {FIRST} 1 lo",
        f"{SECOND} [server 1] server {SECOND} 1 lo",
        f"{SECOND} [worker 1] worker {SECOND} 1 lo",
        f"{THIRD} [worker 2] worker {THIRD} 1 lo",
    ]


def test_failing_worker_ends_servers_and_scheduler(cluster: LoopbackCluster) -> None:
    result = cluster.run("-s", "3", '[ "$DMLC_ROLE" != worker ] || exit 3; sleep 1000')
    assert result.code == 3
    assert "ended with exit code 3" in result.reason
    assert ": worker " in result.reason


def test_failing_server_ends_the_job(cluster: LoopbackCluster) -> None:
    result = cluster.run("-n", "2", "-s", "1", '[ "$DMLC_ROLE" != server ] || exit 4; sleep 1000')
    assert result.code == 4
    assert result.reason == f"launch: {FIRST}: server 0 ended with exit code 4"


def test_servers_that_outlive_their_workers_are_stopped_without_a_failure(cluster: LoopbackCluster) -> None:
    result = cluster.run("-n", "2", "-s", "2", '[ "$DMLC_ROLE" = worker ] || sleep 1000')
    assert (result.code, result.stderr) == (0, b"")
    assert cluster.ranks() == []


def test_ctrl_c_leaves_no_server_and_no_scheduler(cluster: LoopbackCluster) -> None:
    with cluster.start("-s", "3", "echo up; sleep 1000") as launcher:
        read_lines(launcher.stdout, 7)
        ranks = cluster.ranks()
        launcher.send_signal(signal.SIGINT)
        launcher.communicate(timeout=60)
    assert len(ranks) >= 7
    assert launcher.returncode == 130
    assert cluster.ranks() == []


def test_missing_interface_ends_the_job_with_its_name(cluster: LoopbackCluster) -> None:
    result = cluster.run("-n", "2", "-s", "1", "sleep 1000", environment={"DMLC_INTERFACE": "eth77"})
    assert result.code == 1
    assert b"DMLC_INTERFACE must name an interface of lo, " in result.stderr


HOROVOD = """
import os, time, urllib.error, urllib.request
get = lambda name: os.environ["HOROVOD_" + name]
store = "http://%s:%s" % (get("GLOO_RENDEZVOUS_ADDR"), get("GLOO_RENDEZVOUS_PORT"))
def ask(method, path, body=None):
    request = urllib.request.Request(store + path, data=body, method=method)
    return urllib.request.urlopen(request, timeout=60).read()
def wait(path):
    for _ in range(1200):
        try:
            return ask("GET", path)
        except urllib.error.HTTPError:
            time.sleep(0.05)
ask("PUT", "/global/" + get("RANK"), get("HOSTNAME").encode())
print(*[wait("/global/%d" % rank).decode() for rank in range(int(get("SIZE")))], get("GLOO_IFACE"))
ask("DELETE", "/global/" + get("RANK"))
"""


def test_horovods_ranks_meet_at_the_launchers_store(cluster: LoopbackCluster) -> None:
    result = cluster.run("--framework", "horovod", "python", "-c", HOROVOD)
    assert (result.code, result.stderr) == (0, b"")
    assert result.lines == [f"{host} [0] {FIRST} {SECOND} {THIRD} lo" for host in ADDRESSES]


def test_torch_ranks_on_one_machine_use_one_thread_each_by_default(cluster: LoopbackCluster) -> None:
    show = "echo $OMP_NUM_THREADS"
    assert cluster.run("-n", "1", show).lines == [f"{FIRST} [0] "]
    assert set(cluster.run("-n", "2", "--nproc-per-node", "2", show).stdout.split()[2::3]) == {b"1"}
    shared = cluster.run("-n", "2", "--nproc-per-node", "2", show, environment={"OMP_NUM_THREADS": "5"})
    assert set(shared.stdout.split()[2::3]) == {b"5"}


@pytest.fixture
def mpirun(cluster: LoopbackCluster) -> dict[str, str]:
    """Return a PATH with an mpirun that prints its arguments; Open MPI is not part of the test environment."""
    program = cluster.directory / "bin" / "mpirun"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\n"
        "import os, sys\n"
        "print(sys.argv[1:])\n"
        "print(os.environ['SECRET'], os.environ['OMPI_MCA_btl_tcp_if_include'])\n"
        "print('hunter2' in open('/proc/self/cmdline').read())\n"
        "sys.exit(int(os.environ.get('CODE', '0')))\n"
    )
    program.chmod(0o755)
    return {"PATH": f"{program.parent}:{cluster.environment['PATH']}", "SECRET": "hunter2"}


def test_mpirun_runs_once_with_secrets_only_in_its_environment(
    cluster: LoopbackCluster, mpirun: dict[str, str]
) -> None:
    result = cluster.run("-n", "1", "--launcher", "mpi", "--env", "SECRET", "python", "x y", environment=mpirun)
    options = ["-bind-to", "none", "-map-by", "slot", "-mca", "pml", "ob1", "-mca", "btl", "^openib"]
    variables = ["NCCL_SOCKET_IFNAME", "PATH", "SECRET", "STRAY_TOKEN"]
    exports = [word for name in variables for word in ("-x", name)]
    prefix = f"{FIRST} [mpirun]"
    assert result.lines == sorted(
        [
            f"{prefix} {['-np', '1', '-H', f'{FIRST}:1', *options, *exports, 'python', 'x y']}",
            f"{prefix} hunter2 lo",
            f"{prefix} False",
        ]
    )
    assert (result.code, result.stderr) == (0, b"")


def test_mpiruns_exit_code_is_the_jobs(cluster: LoopbackCluster, mpirun: dict[str, str]) -> None:
    result = cluster.run("--launcher", "mpi", "--env", "CODE:9", "--env", "SECRET", "x", "y", environment=mpirun)
    assert result.code == 9
    assert result.reason == f"launch: {FIRST}: mpirun ended with exit code 9"


def test_missing_mpirun_exits_with_127(cluster: LoopbackCluster, tmp_path: Path) -> None:
    result = cluster.run("--launcher", "mpi", "python", "x")
    assert result.code == 127
    assert b"mpirun: command not found" in result.stderr
