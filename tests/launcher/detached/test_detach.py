"""Test detached jobs with a stand-in for systemd; tests/e2e has the real one."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.detached import detach
from launcher.errors import LaunchError
from launcher.job_records.recorder import user_name
from launcher.job_records.records import JobRecord, JobState
from launcher.options.parser import parse_options
from launcher.paths import JOBS_DIR
from tests.launcher.loopback_cluster import ADDRESSES, LAUNCHER, LoopbackCluster, read_lines, wait_until_gone

FIRST, SECOND, _ = ADDRESSES
SECRET = f"hunter2-{os.urandom(8).hex()}"
"""Value that no process of another test has on its command line."""
SYSTEMD_RUN = f"""#!{sys.executable}
import os, select, socket, subprocess, sys
arguments, program = sys.argv[: sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
log = os.path.join(os.environ["XDG_RUNTIME_DIR"], "seen")
open(log, "w").write(repr(sys.argv))
here = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
here.bind(os.path.join(os.environ["XDG_RUNTIME_DIR"], "notify"))
unit = subprocess.Popen(
    program,
    env={{"PATH": "/usr/bin:/bin", "NOTIFY_SOCKET": here.getsockname()}},
    cwd="/",
    stdin=subprocess.DEVNULL,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
    start_new_session=True,
)
ended = os.pidfd_open(unit.pid)
ready, _, _ = select.select([here, ended], [], [])
if here in ready:
    assert here.recv(100) == b"READY=1"
else:
    print("Job for the unit failed.", file=sys.stderr)
    sys.exit(1)
"""


class Shell:
    """A user's shell on the first node."""

    def __init__(self, cluster: LoopbackCluster, monkeypatch: pytest.MonkeyPatch, *, runtime: Path) -> None:
        self.cluster = cluster
        self.runtime = runtime
        (self.runtime / "systemd").mkdir()
        cluster.write_program("systemd-run", "").write_text(SYSTEMD_RUN)
        linger = cluster.directory / "linger"
        linger.mkdir()
        (linger / user_name()).touch()
        monkeypatch.setattr(detach, "LINGER", linger)
        environment = cluster.environment | {
            "PATH": f"{cluster.directory}/bin:{cluster.environment['PATH']}",
            "XDG_RUNTIME_DIR": str(self.runtime),
            "SECRET": SECRET,
            "SSH_AUTH_SOCK": "/run/agent",
        }
        for name in tuple(os.environ):
            monkeypatch.delenv(name)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

    def launch(self, *arguments: str, hosts: tuple[str, ...] = (FIRST, SECOND), cwd: str = "/") -> int:
        options = ["-H", str(self.cluster.write_hosts_file(hosts)), "--env", f"STRAY_TOKEN:{self.cluster.token}"]
        words = ["--detach", *options, *arguments]
        return detach.detach(words, grace_s=parse_options(words, environ=os.environ).grace_s, cwd=cwd)

    def run_subcommand(self, *words: str) -> bytes:
        return subprocess.run([sys.executable, str(LAUNCHER), *words], capture_output=True, timeout=60).stdout

    def record(self) -> JobRecord:
        return JobRecord.from_bytes(self.run_subcommand("status", "--json"))


@pytest.fixture
def shell(cluster: LoopbackCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    # Short, like /run/user/1000, because the name of a socket has 108 bytes (unix(7)).
    with tempfile.TemporaryDirectory(dir="/tmp") as runtime:
        shell = Shell(cluster, monkeypatch, runtime=Path(runtime))
        yield shell
        shell.run_subcommand("stop")


def test_detached_job_outlives_its_launch(
    shell: Shell, tmp_path: Path, capfd: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    place = tmp_path / "a place"
    place.mkdir()
    before = os.umask(0o027)
    request.addfinalizer(lambda: os.umask(before))
    assert shell.launch("echo $RANK in $PWD $(umask) agent=$SSH_AUTH_SOCK; sleep 1000", cwd=str(place)) == 0
    output = capfd.readouterr()
    job = shell.record()
    assert (output.out, output.err) == (f"{job.id}\n", f"launch: follow it with: launch logs -f {job.id}\n")
    assert (job.state, job.detached, job.cwd) == (JobState.RUNNING, True, str(place))
    with subprocess.Popen([sys.executable, str(LAUNCHER), "logs", "-f"], stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        lines = sorted(reader.stdout.readline() for _ in range(2))
        assert lines == [
            f"{FIRST} [0] 0 in {place} 0027 agent=\n".encode(),
            f"{SECOND} [0] 1 in {place} 0022 agent=\n".encode(),
        ]
        ranks = shell.cluster.ranks()
        assert shell.run_subcommand("stop") == f"{job.id} CANCELLED\n".encode()
        wait_until_gone(ranks, seconds=60)
        assert b"launch: stopped by SIGTERM\n" in reader.stdout.read()
        assert reader.wait(60) == 0


def test_detached_launch_returns_while_its_job_is_queued(shell: Shell, capfd: pytest.CaptureFixture[str]) -> None:
    with shell.cluster.start("-n", "1", "echo up; sleep 1000", hosts=[FIRST]) as holder:
        read_lines(holder.stdout, 1)
        assert shell.launch("--wait", "-n", "1", "echo mine") == 0
        output = capfd.readouterr()
        job = output.out.strip()
        assert output.err.startswith("launch: waiting, 1st in the queue, for 1 node (in use by job ")
        assert JobRecord.from_bytes(shell.run_subcommand("status", "--json", job)).state is JobState.WAITING
        holder.terminate()
        holder.communicate(timeout=60)
    said_by_job = shell.run_subcommand("logs", "-f", job).decode().splitlines()
    assert said_by_job[0].startswith("launch: waiting, 1st in the queue")
    assert said_by_job[-1] == f"{FIRST} [0] mine"


def test_shell_variables_reach_the_job_but_no_argv_or_disk(shell: Shell, tmp_path: Path) -> None:
    assert shell.launch("-n", "1", "--env", "SECRET", "echo $SECRET; sleep 1000") == 0
    seen = (shell.runtime / "seen").read_text()
    assert "deeplearning-job-" in seen
    assert SECRET not in seen
    assert "STRAY_TOKEN" not in seen
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert SECRET.encode() not in path.read_bytes()
        except OSError:
            continue
    until = time.monotonic() + 60
    log = tmp_path / JOBS_DIR / shell.record().id / "job.log"
    while not log.read_bytes():
        assert time.monotonic() < until
        time.sleep(0.05)
    assert log.read_text() == f"{FIRST} [0] {SECRET}\n"
    # Handed over and deleted; it remains only in what the job itself printed.
    assert sorted(path.name for path in shell.runtime.iterdir()) == ["notify", "seen", "systemd"]
    kept = [path for path in (tmp_path / JOBS_DIR).rglob("*") if path.is_file() and path.suffix != ".log"]
    assert kept
    assert not any(SECRET.encode() in path.read_bytes() for path in kept)


def test_systemd_stop_timeout_covers_the_grace_period(shell: Shell) -> None:
    assert shell.launch("-n", "1", "--grace", "600", "true") == 0
    # The grace, two waits for nodes of 10 s each, two uploads of 15 s.
    assert "'TimeoutStopSec=650'" in (shell.runtime / "seen").read_text()


def test_reason_of_a_detached_job_that_does_not_start_is_printed(
    shell: Shell, capfd: pytest.CaptureFixture[str]
) -> None:
    assert shell.launch("true", hosts=(FIRST, "127.0.0.77")) == 1
    output = capfd.readouterr()
    assert output.out == ""
    assert output.err.startswith("launch: cannot reach 1 of 2 nodes, nothing started: 127.0.0.77: ")
    assert output.err.count("\n") == 1
    assert shell.record().state is JobState.FAILED


def test_job_that_ends_at_once_has_started(shell: Shell, capfd: pytest.CaptureFixture[str]) -> None:
    assert shell.launch("exit 3") == 0
    job_id = capfd.readouterr().out.strip()
    assert b"ended with exit code 3" in shell.run_subcommand("logs", "-f", job_id)
    job = shell.record()
    assert (job.id, job.state, job.exit_code) == (job_id, JobState.FAILED, 3)


def test_sigterm_ends_a_start_and_its_job(shell: Shell) -> None:
    """dlcluster run sends it after Ctrl-C, before its user knows the job's id."""
    stop = f'echo "$*" > {shell.runtime}/stopped'
    shell.cluster.write_program("systemctl", stop)
    shell.cluster.write_program("systemd-run", "sleep 0.3\nkill -TERM $PPID\nexec sleep 100")
    before = signal.getsignal(signal.SIGTERM)
    assert shell.launch("sleep 1000") == 143
    assert re.fullmatch(r"--user stop deeplearning-job-\S+\.service\n", (shell.runtime / "stopped").read_text())
    assert signal.getsignal(signal.SIGTERM) is before
    assert not [*shell.runtime.glob("*.json")]


def test_unit_that_cannot_be_stopped_is_reported(shell: Shell) -> None:
    shell.cluster.write_program("systemctl", "exit 1")
    shell.cluster.write_program("systemd-run", "sleep 0.3\nkill -TERM $PPID\nexec sleep 100")
    with pytest.raises(LaunchError, match=r"job \S+ may still be running: cannot stop its unit: "):
        shell.launch("sleep 1000")


def test_job_ended_by_a_shutdown_is_failed_and_not_cancelled(shell: Shell) -> None:
    shell.cluster.write_program("systemctl", '[ "$*" = "--user is-system-running" ] && echo stopping\nexit 1')
    assert shell.launch("sleep 1000") == 0
    os.kill(shell.record().pid, signal.SIGTERM)
    shell.run_subcommand("logs", "-f")
    job = shell.record()
    assert (job.state, job.exit_code) == (JobState.FAILED, 143)
    assert job.reason == "stopped by SIGTERM: the user's systemd is stopping"


def test_detaching_without_linger_is_refused_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detach, "LINGER", tmp_path)
    with pytest.raises(LaunchError, match="first run sudo loginctl enable-linger someone"):
        detach.check_linger("someone")


def test_missing_systemd_of_the_user_is_reported(shell: Shell) -> None:
    (shell.runtime / "systemd").rmdir()
    with pytest.raises(LaunchError, match=r"is not running: .*/systemd does not exist"):
        shell.launch("true")


def test_missing_systemd_run_is_reported(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LaunchError, match="--detach: cannot run systemd-run: No such file or directory"):
        shell.launch("true")


def test_job_whose_log_cannot_be_kept_is_refused(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / ".local").write_text("no directory")
    with pytest.raises(LaunchError, match=r"--detach: cannot keep the job's log: .*/.local"):
        shell.launch("true")
