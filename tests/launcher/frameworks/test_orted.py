"""Test that mpirun's daemons run under the nodes' runners, and that neither they nor their ranks outlive the job.

tests/frameworks tests Open MPI itself; here, a script uses the remote shell like mpirun.
"""

import os
import signal
import socket
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.frameworks.orted.command_handoff import receive_command, send_command
from launcher.frameworks.orted.names import socket_name
from tests.launcher.loopback_cluster import (
    ADDRESSES,
    LoopbackCluster,
    change_constants,
    copy_launcher,
    read_lines,
    wait_until_gone,
)
from tests.waiting import wait_until

FIRST, SECOND, THIRD = ADDRESSES
MPIRUN = """
import os, subprocess, sys, time
places = sys.argv[sys.argv.index("-H") + 1].split(",")
hosts = [place.rpartition(":")[0] for place in places[1:]]
agent = os.environ["OMPI_MCA_plm_rsh_agent"].split(" ")
# In several words, the command's first with a part of a shell's line.
command = ["A='a b' ; export A ;", *os.environ["DAEMON"].split(" ")]
asked = [subprocess.Popen([*agent, host, *command]) for host in hosts]
if any([one.wait() for one in asked]):
    sys.exit(1)
print("up", os.getpid(), flush=True)
time.sleep(float(os.environ.get("RUNS", "0")))
sys.exit(int(os.environ.get("CODE", "0")))
"""
RANK = "setsid sleep 1000 & echo daemon $$; wait"
"""A daemon whose rank has left its session."""


@pytest.fixture
def environment(cluster: LoopbackCluster) -> dict[str, str]:
    """Return variables with an mpirun first on PATH that starts one daemon on each other host."""
    script = cluster.directory / "mpirun.py"
    script.write_text(MPIRUN)
    program = cluster.write_program("mpirun", f'exec {sys.executable} {script} "$@"')
    return {"PATH": f"{program.parent}:{cluster.environment['PATH']}"}


def launch(daemon: str, **more: str) -> list[str]:
    variables = {"DAEMON": daemon, **more}
    return ["--launcher", "mpi", *(word for pair in variables.items() for word in ("--env", ":".join(pair))), "x"]


def test_daemon_is_the_runners_child_and_has_the_jobs_variables(
    cluster: LoopbackCluster, environment: dict[str, str]
) -> None:
    result = cluster.run(*launch('echo "$A" $OMPI_MCA_btl_tcp_if_include $MORE', MORE="more"), environment=environment)
    assert (result.code, result.stderr) == (0, b"")
    output = [line for line in result.lines if "orted" in line]
    assert output == [f"{SECOND} [orted 1] a b lo more", f"{THIRD} [orted 2] a b lo more"]


def test_exit_code_is_mpiruns_when_a_daemon_has_failed(
    cluster: LoopbackCluster, patient_launcher: Path, environment: dict[str, str]
) -> None:
    patient = replace(cluster, launcher=patient_launcher)
    result = patient.run(*launch("exit 1", RUNS="1", CODE="9"), environment=environment)
    assert result.code == 9
    assert result.reason == f"launch: {FIRST}: mpirun ended with exit code 9"


@pytest.fixture(scope="session")
def short_mpirun_timeout_launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the launcher, with little time for mpirun to notice that a daemon has ended."""
    copy = copy_launcher(tmp_path_factory.mktemp("short_mpirun_timeout_launcher"))
    change_constants(copy, {"frameworks/orted/command_handoff.MPIRUN_EXIT_TIMEOUT_S": 0.25})
    return copy


@pytest.mark.parametrize("victim", ["mpirun", "launcher", "daemon"])
def test_no_daemon_is_left_on_any_node(
    cluster: LoopbackCluster, short_mpirun_timeout_launcher: Path, environment: dict[str, str], victim: str
) -> None:
    cluster_with_runtime_dir = replace(cluster, launcher=short_mpirun_timeout_launcher)
    with cluster_with_runtime_dir.start(*launch(RANK, RUNS="1000"), environment=environment) as launcher:
        lines = [line.split() for line in read_lines(launcher.stdout, 3)]
        everything = cluster.ranks()
        assert len(everything) >= 7  # mpirun, and on two nodes the waiting program, its shell and the rank
        pids = {words[-2]: int(words[-1]) for words in lines}
        if victim == "launcher":
            launcher.kill()
        else:
            # This mpirun does not watch its daemons.
            os.kill(pids["up" if victim == "mpirun" else "daemon"], signal.SIGKILL)
            launcher.communicate(timeout=60)
            assert launcher.returncode == 137
        wait_until_gone(everything, seconds=60)


def test_each_attempt_and_host_has_a_socket_of_its_own() -> None:
    names = [socket_name(job, host) for job in ("j-0", "j-1") for host in ("n1", "n2", "127.0.0.1", "127.0.0.2")]
    assert len(set(names)) == len(names)
    # mpirun may know a host only by its first name.
    assert socket_name("j-0", "n1.example.com") == socket_name("j-0", "n1")


@pytest.fixture
def name() -> str:
    return f"launch-test-{os.urandom(8).hex()}"


def test_sender_waits_for_the_receiver(name: str) -> None:
    codes: list[int] = []
    bringing = threading.Thread(target=lambda: codes.append(send_command(name, b"x" * 300_000, seconds=30)))
    bringing.start()
    assert receive_command(name, seconds=30) == "x" * 300_000
    bringing.join(60)
    assert codes == [0]


def test_waiting_for_a_command_that_never_arrives_times_out(name: str) -> None:
    with pytest.raises(TimeoutError, match=r"mpirun has sent no command within 0\.1 s"):
        receive_command(name, seconds=0.1)
    with pytest.raises(ConnectionRefusedError):
        send_command(name, b"true", seconds=0.1)


def test_command_goes_only_to_the_same_user(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        monkeypatch.setattr(os, "getuid", lambda: 54321)
        with pytest.raises(PermissionError, match="another user's process waits there"):
            send_command(name, b"true", seconds=30)
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(100) == b""


def test_command_comes_only_from_the_same_user(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own, another = os.getuid(), iter([54321])
    monkeypatch.setattr(os, "getuid", lambda: next(another, own))
    taken: list[str] = []
    taking = threading.Thread(target=lambda: taken.append(receive_command(name, seconds=60)))
    taking.start()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as refused:
        wait_until(lambda: refused.connect_ex(f"\0{name}") == 0, "the receiver to listen", timeout_s=60)
        refused.settimeout(60)
        assert refused.recv(1) == b""
    assert send_command(name, b"ours", seconds=60) == 0
    taking.join(60)
    assert taken == ["ours"]
