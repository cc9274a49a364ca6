"""Test restarts: on which nodes, with which ranks, and when there is none."""

import asyncio
import shlex
import signal
import subprocess
import uuid
from dataclasses import replace
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from launcher.job import restarts
from launcher.job import run as runs
from launcher.job.failure import Failure, FailureCause
from launcher.job.restarts import node_is_arriving
from launcher.job.run import JobContext
from launcher.job_records.recorder import JobRecorder
from launcher.output.output_stream import OutputStream
from launcher.paths import JOBS_DIR, LOCK_FILE
from launcher.spec import RestartPolicy
from launcher.transport.protocol import FrameType
from tests.launcher.example_job import JOB
from tests.launcher.loopback_cluster import (
    ADDRESSES,
    LoopbackCluster,
    change_constants,
    copy_launcher,
    launcher_lines,
    read_lines,
)

FIRST, SECOND, THIRD = ADDRESSES
REFUSED = "ssh: connect to host: Connection refused"


def in_first_runs(count: int, commands: str) -> str:
    """Return commands of the shell that do something in the first ``count`` runs of the job."""
    return f"if [ $TORCHELASTIC_RESTART_COUNT -lt {count} ]; then {commands}; fi"


def on_rank(rank: int, commands: str) -> str:
    return f"if [ $RANK = {rank} ]; then {commands}; fi"


def lose(rank: int, *, first: str = "true") -> str:
    """Return commands that kill the runner of a rank, and thus the connection, in the first run; ``first`` precedes."""
    end = on_rank(rank, f"{first}; kill -9 $PPID")
    return in_first_runs(1, f"{end}; sleep 1000") + "; echo $RANK of $WORLD_SIZE"


@pytest.fixture
def patient_cluster(cluster: LoopbackCluster, patient_launcher: Path) -> LoopbackCluster:
    """Return the same user, with a launcher whose last attempt to reach the nodes has time on a busy machine."""
    return replace(cluster, launcher=patient_launcher)


@pytest.fixture
def unreachable_dir(cluster: LoopbackCluster, nodes: Path) -> Path:
    """Create a directory in which a file with a node's name makes that node unreachable."""
    directory = cluster.directory / "unreachable"
    directory.mkdir()
    look = f'for word; do if [ -e {directory}/"$word" ]; then echo "{REFUSED}" >&2; exit 255; fi; done'
    cluster.write_program("ssh", f'{look}\nexec {nodes}/bin/ssh "$@"')
    cluster.environment["PATH"] = f"{cluster.directory}/bin:{cluster.environment['PATH']}"
    return directory


def test_failed_job_restarts_with_a_new_port_under_its_id(cluster: LoopbackCluster) -> None:
    show = "echo $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS $RANK $TORCHELASTIC_RUN_ID $MASTER_PORT"
    end = in_first_runs(2, f"{on_rank(1, 'exit 3')}; sleep 1000")
    result = cluster.run("--max-restarts", "2", f"{show}; {end}")
    assert result.code == 0
    words = [line.split()[2:] for line in result.lines]
    assert sorted(line[:3] for line in words if line[0] == "2") == [["2", "2", str(rank)] for rank in range(3)]
    assert len({line[3] for line in words}) == 1
    runs_and_ports = {(line[0], line[4]) for line in words}
    assert len(runs_and_ports) == 3
    # Ports are chosen at random: two runs may have the same one, and hardly ever all three.
    assert len({port for _, port in runs_and_ports}) > 1
    failed = f"launch: {SECOND}: rank 1 ended with exit code 3; waiting at most 600 s for 3 nodes to answer, "
    assert launcher_lines(result.stderr) == [
        line
        for number in (1, 2)
        for line in (
            f"{failed}then restarting",
            f"launch: restart {number} of 2 on 3 nodes: {FIRST}, {SECOND}, {THIRD}",
        )
    ]


def test_job_without_restarts_left_ends_with_its_last_exit_code(cluster: LoopbackCluster) -> None:
    result = cluster.run("--max-restarts", "2", "exit $((40 + TORCHELASTIC_RESTART_COUNT))", hosts=[FIRST])
    assert result.code == 42
    assert result.reason == f"launch: {FIRST}: rank 0 ended with exit code 42"


def test_job_without_max_restarts_ends_with_its_first_failure(cluster: LoopbackCluster) -> None:
    result = cluster.run("echo $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS; exit 3", hosts=[FIRST])
    assert (result.code, result.lines) == (3, [f"{FIRST} [0] 0 of 0"])


def test_ranks_on_fewer_nodes_have_no_gap(patient_cluster: LoopbackCluster, unreachable_dir: Path) -> None:
    options = ("--max-restarts", "1", "--min-nodes", "2", "--rejoin-timeout", "0")
    result = patient_cluster.run(*options, lose(1, first=f"touch {unreachable_dir / SECOND}"))
    assert result.code == 0
    assert result.lines == [f"{FIRST} [0] 0 of 2", f"{THIRD} [0] 1 of 2"]
    assert launcher_lines(result.stderr)[-1] == f"launch: restart 1 of 1 on 2 of 3 nodes: {FIRST}, {THIRD}"


def test_node_that_returns_in_time_keeps_its_ranks(cluster: LoopbackCluster, unreachable_dir: Path) -> None:
    gone = unreachable_dir / SECOND
    with cluster.start("--max-restarts", "1", lose(1, first=f"touch {gone}")) as launcher:
        assert launcher.stderr is not None
        assert b"; waiting at most 600 s for 3 nodes" in launcher.stderr.readline()
        gone.unlink()
        stdout, _ = launcher.communicate(timeout=60)
    assert launcher.returncode == 0
    assert sorted(stdout.decode().splitlines()) == [f"{host} [0] {rank} of 3" for rank, host in enumerate(ADDRESSES)]


@pytest.mark.parametrize(("arriving", "waits"), [("0", False), ("1", True), (None, True)])
def test_restart_waits_for_a_setup_only_while_a_node_is_arriving(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arriving: str | None, *, waits: bool
) -> None:
    if arriving is not None:
        (tmp_path / "arriving").write_text(f"{arriving}\n")
    is_arriving = node_is_arriving(tmp_path / "arriving")
    monkeypatch.setattr(restarts, "node_is_arriving", lambda: is_arriving)
    deadline = restarts.RejoinDeadline(RestartPolicy(rejoin_timeout_s=600, setup_timeout_s=900), now=0)
    assert [deadline.refresh_seconds_left(now=now) for now in (0, 600)] == [600, 60 if waits else 0]
    assert deadline.refresh_seconds_left(now=1490) == (10 if waits else -890)


def test_new_node_has_a_minute_to_answer_after_its_setup(monkeypatch: pytest.MonkeyPatch) -> None:
    arriving = iter([True, False])
    monkeypatch.setattr(restarts, "node_is_arriving", lambda: next(arriving))
    deadline = restarts.RejoinDeadline(RestartPolicy(rejoin_timeout_s=600, setup_timeout_s=900), now=0)
    assert [deadline.refresh_seconds_left(now=now) for now in (0, 700, 705)] == [600, 60, 55]


def test_job_ends_if_too_few_nodes_return(patient_cluster: LoopbackCluster, unreachable_dir: Path) -> None:
    options = ("--max-restarts", "1", "--rejoin-timeout", "1")
    result = patient_cluster.run(*options, lose(1, first=f"touch {unreachable_dir / SECOND}"))
    assert result.code == 1
    assert result.reason.startswith(f"launch: {SECOND}: lost: ")
    assert result.reason.endswith(f"; not restarted: 2 nodes available, at least 3 needed; {SECOND}: {REFUSED}")
    assert result.lines == []


def test_restart_takes_the_first_available_hosts(cluster: LoopbackCluster, unreachable_dir: Path) -> None:
    result = cluster.run("-n", "2", "--max-restarts", "1", lose(1, first=f"touch {unreachable_dir / SECOND}"))
    assert result.code == 0
    assert result.lines == [f"{FIRST} [0] 0 of 2", f"{THIRD} [0] 1 of 2"]


def test_restart_reads_the_hosts_file_again(cluster: LoopbackCluster) -> None:
    hosts = cluster.write_hosts_file([FIRST, SECOND])
    swap = f"printf '%s\\n' {FIRST} {THIRD} > {hosts}.new; mv {hosts}.new {hosts}"
    result = cluster.run("--max-restarts", "1", lose(0, first=swap), hosts=[FIRST, SECOND])
    assert result.code == 0
    assert result.lines == [f"{FIRST} [0] 0 of 2", f"{THIRD} [0] 1 of 2"]


def test_job_waits_for_a_node_that_is_missing_at_the_start(cluster: LoopbackCluster, unreachable_dir: Path) -> None:
    gone = unreachable_dir / THIRD
    gone.touch()
    with cluster.start("--max-restarts", "1", "echo $RANK of $WORLD_SIZE") as launcher:
        assert launcher.stderr is not None
        waiting = launcher.stderr.readline().decode()
        gone.unlink()
        stdout, _ = launcher.communicate(timeout=60)
    assert waiting.startswith(
        f"launch: cannot reach 1 of 3 nodes, nothing started: {THIRD}: {REFUSED}; waiting at most 600 s"
    )
    assert sorted(stdout.decode().splitlines()) == [f"{host} [0] {rank} of 3" for rank, host in enumerate(ADDRESSES)]


def test_restart_has_as_many_servers_as_workers(patient_cluster: LoopbackCluster, unreachable_dir: Path) -> None:
    gone = unreachable_dir / THIRD
    # The processes do not know their attempt, but the unreachable node reveals it.
    fail = f"if [ $DMLC_ROLE = worker ] && [ ! -e {gone} ]; then touch {gone}; exit 1; fi"
    report = f"if [ -e {gone} ]; then echo $DMLC_ROLE of $DMLC_NUM_SERVER; fi"
    options = ("--framework", "mxnet", "--max-restarts", "1", "--min-nodes", "1", "--rejoin-timeout", "0")
    result = patient_cluster.run(*options, f"{fail}; {report}")
    assert result.code == 0
    last = [line for line in result.lines if line.endswith(" of 2")]
    assert len(last) == 5


# ---- failures that no restart can fix ----


@pytest.mark.parametrize("command", [["no-such-program", "x"], ["no-such-program"], ["/etc/passwd", "x"]])
def test_command_that_cannot_run_is_not_restarted(cluster: LoopbackCluster, command: list[str]) -> None:
    result = cluster.run("--max-restarts", "3", *command)
    assert result.code in (126, 127)
    assert b"waiting" not in result.stderr


def test_job_does_not_wait_for_a_host_that_cannot_be_resolved(cluster: LoopbackCluster) -> None:
    result = cluster.run("--max-restarts", "3", "true", hosts=[FIRST, "no-such-host.invalid"])
    assert result.code == 1
    assert result.reason.startswith("launch: cannot reach 1 of 2 nodes, nothing started: no-such-host.invalid: ")
    assert result.stderr.count(b"\n") == 1


def test_job_without_a_reader_does_not_restart(cluster: LoopbackCluster) -> None:
    with cluster.start("--max-restarts", "3", "echo up; sleep 1000") as launcher:
        assert launcher.stdout is not None
        launcher.stdout.readline()
        launcher.stdout.close()
        assert launcher.wait(60) == 128 + signal.SIGPIPE


def test_signal_ends_the_wait_for_nodes(cluster: LoopbackCluster, unreachable_dir: Path) -> None:
    (unreachable_dir / THIRD).touch()
    with cluster.start("--max-restarts", "3", "true") as launcher:
        assert launcher.stderr is not None
        assert b"; waiting at most " in launcher.stderr.readline()
        launcher.send_signal(signal.SIGINT)
        _, stderr = launcher.communicate(timeout=60)
    assert (launcher.returncode, stderr) == (130, b"launch: stopped by SIGINT\n")


def test_agent_sees_the_grace_only_while_ranks_run(cluster: LoopbackCluster, unreachable_dir: Path) -> None:
    go = cluster.directory / "go"
    rank = f"echo up; until [ -e {go} ]; do sleep 0.1; done; exit 1"
    with cluster.start("--max-restarts", "3", "--grace", "60", rank) as launcher:
        read_lines(launcher.stdout, 3)
        [lock] = (cluster.directory / JOBS_DIR).glob(f"*/{LOCK_FILE}")
        assert lock.read_text() == "000000060\n"
        (unreachable_dir / THIRD).touch()
        go.touch()
        assert launcher.stderr is not None
        assert b"; waiting at most " in launcher.stderr.readline()
        assert lock.read_text() == "000000000\n"
        launcher.send_signal(signal.SIGINT)
        launcher.communicate(timeout=60)


def test_ranks_that_ignore_term_end_before_the_restart(cluster: LoopbackCluster) -> None:
    asleep = f"sleep 98765.{uuid.uuid4().int}"
    alive = f"import os, subprocess, sys; sys.exit(subprocess.call(['pgrep', '-xf', '{asleep}'], stdout=2) == 0)"
    stubborn = in_first_runs(1, f"{on_rank(1, 'exit 1')}; trap '' TERM; {asleep} & wait; {asleep}")
    result = cluster.run("--max-restarts", "1", "--grace", "1", f"{stubborn}; python -c {shlex.quote(alive)}")
    assert result.code == 0, result.stderr


def test_grace_sets_the_time_between_term_and_kill(cluster: LoopbackCluster, tmp_path: Path) -> None:
    long_grace_launcher = copy_launcher(tmp_path / "long-grace")
    change_constants(long_grace_launcher, {"spec.DEFAULT_GRACE_S": 1000.0})
    slow = "trap 'sleep 1000' TERM; echo up; sleep 1000"
    cluster = replace(cluster, launcher=long_grace_launcher)
    with cluster.start("--grace", "1", slow, hosts=[SECOND]) as launcher:
        read_lines(launcher.stdout, 1)
        launcher.terminate()
        try:
            launcher.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            pytest.fail("the grace was longer than the second that was asked for")


def test_preempted_nodes_use_up_no_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, failed = (
        Failure(exit_code=1, reason="r", cause=cause) for cause in (FailureCause.PREEMPTION, FailureCause.OTHER)
    )
    ends, calls = [taken, taken, failed, taken, failed, failed], []

    async def run(*_: object, restart_count: int = 0, label: str = "start") -> Failure:
        calls.append((restart_count, label))
        return ends[len(calls) - 1]

    monkeypatch.setattr(runs, "run_first_time", run)
    monkeypatch.setattr(runs, "restart_job", run)
    context = JobContext(job_id="j", cwd="/", streams={}, observer=JobRecorder(JOB, job_id="j", cwd="/"))
    job = replace(JOB, restart_policy=RestartPolicy(max_restarts=1))
    assert asyncio.run(runs.run_with_restarts(job, context)) is failed
    uncounted = "restart (not counted)"
    assert calls == [(0, "start"), (1, uncounted), (2, uncounted), (3, "restart 1 of 1"), (4, uncounted)]
    calls.clear()
    assert asyncio.run(runs.run_with_restarts(JOB, context)) is taken
    assert calls == [(0, "start")]


@pytest.mark.parametrize(("short_s", "cause"), [(0.0, FailureCause.PREEMPTION), (60.0, FailureCause.NODE_LOSS)])
def test_node_preempted_soon_after_the_start_uses_up_a_restart(
    monkeypatch: pytest.MonkeyPatch, short_s: float, cause: FailureCause
) -> None:
    """A job that crashes its machine would restart without limit, because its node looks like a preempted one."""
    preempted = Failure(exit_code=1, reason="r", cause=FailureCause.PREEMPTION)
    monkeypatch.setattr("launcher.job.failure.SHORT_RUN_S", short_s)
    monkeypatch.setattr(runs, "prepare_nodes", AsyncMock(return_value=[]))
    monkeypatch.setattr(runs, "supervise_nodes", AsyncMock(return_value=preempted))
    streams = {FrameType.STDOUT: OutputStream(1)}
    context = JobContext(job_id="j", cwd="/", streams=streams, observer=JobRecorder(JOB, job_id="j", cwd="/"))
    failure = asyncio.run(runs.run_once(JOB, [], context, restart_count=1))
    assert failure is not None
    assert failure.cause is cause
