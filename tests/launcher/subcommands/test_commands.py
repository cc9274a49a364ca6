"""Test the records of jobs, and the subcommands that show them."""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.job_records.records import JobRecord, JobState, Revision, read_record, write_record
from launcher.paths import JOBS_DIR
from launcher.subcommands import commands, stop
from tests.launcher.example_job import RECORD
from tests.launcher.loopback_cluster import ADDRESSES, LAUNCHER, LoopbackCluster, Result, read_lines, wait_until_gone

FIRST, SECOND, THIRD = ADDRESSES


def run_subcommand(cluster: LoopbackCluster, *words: str, environment: dict[str, str] | None = None) -> Result:
    """Run a subcommand as the user who started the cluster's jobs."""
    ended = subprocess.run(
        [sys.executable, str(LAUNCHER), *words],
        env=cluster.environment | (environment or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return Result(code=ended.returncode, stdout=ended.stdout, stderr=ended.stderr)


def record(cluster: LoopbackCluster, *words: str) -> JobRecord:
    return JobRecord.from_bytes(run_subcommand(cluster, "status", "--json", *words).stdout)


def directory(cluster: LoopbackCluster, job: JobRecord) -> Path:
    return cluster.directory / JOBS_DIR / job.id


# ---- foreground jobs ----


def test_finished_job_is_recorded_in_full(cluster: LoopbackCluster, patient_launcher: Path, tmp_path: Path) -> None:
    place = tmp_path / "code"
    place.mkdir()
    git = ["git", "-c", "user.name=u", "-c", "user.email=e", "-C", str(place)]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "m"]):
        subprocess.run([*git, *command], check=True, timeout=30)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, timeout=30, capture_output=True, text=True).stdout
    # Git has time to answer, also on a busy machine.
    patient = replace(cluster, launcher=patient_launcher)
    assert patient.run("-n", "2", "echo", "hello there", cwd=place).code == 0
    job = record(cluster)
    assert (job.state, job.exit_code, job.reason, job.restarts) == (JobState.SUCCEEDED, 0, None, 0)
    assert (job.command, job.hosts, job.framework) == (("echo", "hello there"), (FIRST, SECOND), "torch")
    assert (job.cwd, job.revision) == (str(place), Revision(commit=head.strip(), dirty=False))
    assert job.end is not None
    assert job.submitted_at <= job.end
    assert job.logs == {FIRST: ["rank-0.log"], SECOND: ["rank-1.log"]}
    assert directory(cluster, job).joinpath("job.json").stat().st_mode & 0o077 == 0


def test_failed_job_is_recorded_with_its_exit_code_and_reason(cluster: LoopbackCluster) -> None:
    cluster.run("[ $RANK != 1 ] || exit 3; sleep 1000")
    job = record(cluster)
    reason = f"{SECOND}: rank 1 ended with exit code 3"
    assert (job.state, job.exit_code, job.reason, job.failed_rank) == (JobState.FAILED, 3, reason, 1)


def test_job_that_did_not_start_is_recorded_as_failed(cluster: LoopbackCluster) -> None:
    cluster.run("true", hosts=[FIRST, "127.0.0.77"])
    job = record(cluster)
    assert (job.state, job.exit_code, job.failed_rank, job.logs) == (JobState.FAILED, 1, None, {})
    assert job.reason is not None
    assert job.reason.startswith("cannot reach 1 of 2 nodes, nothing started: 127.0.0.77: ")


def test_wrong_command_line_leaves_no_record(cluster: LoopbackCluster) -> None:
    assert cluster.run("--bogus", "true").code == 2
    assert run_subcommand(cluster, "list", "--json").stdout == b"[]\n"


def test_ctrl_c_cancels_a_job(cluster: LoopbackCluster) -> None:
    with cluster.start("echo up; sleep 1000") as launcher:
        read_lines(launcher.stdout, 3)
        assert record(cluster).state is JobState.RUNNING
        launcher.send_signal(signal.SIGINT)
        launcher.communicate(timeout=60)
    job = record(cluster)
    assert (job.state, job.exit_code, job.reason) == (JobState.CANCELLED, 130, "stopped by SIGINT")


def test_stop_ends_a_foreground_job_everywhere(cluster: LoopbackCluster) -> None:
    with cluster.start("echo up; sleep 1000") as launcher:
        read_lines(launcher.stdout, 3)
        ranks = cluster.ranks()
        stopped = run_subcommand(cluster, "stop")
        # When stop returns, the job has ended.
        assert cluster.ranks() == []
        wait_until_gone(ranks, seconds=60)
        assert launcher.wait(60) == 143
    job = record(cluster)
    assert (stopped.code, stopped.lines) == (0, [f"{job.id} CANCELLED"])
    assert (job.state, job.reason) == (JobState.CANCELLED, "stopped by SIGTERM")


def test_job_whose_launcher_was_killed_is_shown_as_failed(cluster: LoopbackCluster) -> None:
    with cluster.start("echo up; sleep 1000") as launcher:
        read_lines(launcher.stdout, 3)
        ranks = cluster.ranks()
        launcher.kill()
        launcher.wait()
        job = record(cluster)
        wait_until_gone(ranks, seconds=60)
    assert (job.state, job.end) == (JobState.FAILED, None)
    assert job.reason == ("its record has no end: its launcher was killed, its machine restarted, or its disk was full")
    assert read_record(directory(cluster, job)) == job
    refused = run_subcommand(cluster, "stop", job.id)
    assert (refused.code, refused.reason) == (2, f"launch: job {job.id} has already ended: FAILED")


def test_stop_kills_a_launcher_that_hangs(cluster: LoopbackCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop, "AFTER_GRACE_S", 0.0)
    monkeypatch.setenv("HOME", str(cluster.directory))
    monkeypatch.delenv("DEEPLEARNING_BUCKET", raising=False)
    with cluster.start("-n", "1", "--grace", "1", "echo up; sleep 1000") as launcher:
        read_lines(launcher.stdout, 1)
        ranks = cluster.ranks()
        launcher.send_signal(signal.SIGSTOP)
        assert commands.main(["stop"]) == 0
        assert launcher.wait(60) == -signal.SIGKILL
        wait_until_gone(ranks, seconds=60)
    job = record(cluster)
    assert (job.state, job.reason) == (JobState.CANCELLED, "killed by launch stop")


def test_stop_signals_no_other_process_with_the_launchers_process_id(cluster: LoopbackCluster) -> None:
    with subprocess.Popen(["sleep", "1000"]) as bystander:
        job = replace(RECORD, pid=bystander.pid)
        directory(cluster, job).mkdir(parents=True)
        write_record(directory(cluster, job), job)
        assert run_subcommand(cluster, "stop").code == 2
        assert bystander.poll() is None
        bystander.kill()


def test_jobs_are_listed_with_the_latest_last(cluster: LoopbackCluster) -> None:
    cluster.run("-n", "1", "true", "one")
    cluster.run("-n", "1", "echo 'a\x1b[31m\nb'; exit 1")
    head, first, second = run_subcommand(cluster, "list").stdout.decode().splitlines()
    assert head.split() == ["JOB", "STATE", "SUBMITTED", "TIME", "NODES", "BY", "COMMAND"]
    assert first.split()[1] == "SUCCEEDED"
    assert first.endswith("    1  -            true one")
    assert second.split()[1] == "FAILED"
    # A terminal must not receive the command's control sequences.
    assert second.endswith("echo 'a [31m b'; exit 1")


def test_job_is_listed_and_found_by_its_name(cluster: LoopbackCluster) -> None:
    assert cluster.run("-n", "1", "--name", "baseline", "true").code == 0
    head, line = run_subcommand(cluster, "list").stdout.decode().splitlines()
    assert head.split()[5:] == ["BY", "NAME", "COMMAND"]
    assert line.endswith("    1  -            baseline  true")
    assert (record(cluster, "base").name, record(cluster, "baseline").state) == ("baseline", JobState.SUCCEEDED)
    assert b"name       baseline\n" in run_subcommand(cluster, "status", "baseline").stdout
    refused = cluster.run("--name", "my job", "true")
    form = "a letter, then at most 39 letters, digits, dots, hyphens and underscores"
    assert (refused.code, refused.reason) == (2, f"launch: --name must be {form}, got 'my job'")


def test_stop_needs_a_prefix_of_one_job_when_two_run(cluster: LoopbackCluster) -> None:
    line = "echo up; sleep 1000"
    with cluster.start("-n", "1", line) as first, cluster.start("-n", "1", line) as second:
        for launcher in (first, second):
            read_lines(launcher.stdout, 1)
        refused = run_subcommand(cluster, "stop")
        jobs = [job["id"] for job in json.loads(run_subcommand(cluster, "list", "--json").stdout)]
        assert refused.code == 2
        assert refused.reason == f"launch: 2 jobs are open; name one of them: {jobs[0]}, {jobs[1]}"
        # A common prefix names neither.
        shared = jobs[0][: [one == other for one, other in zip(*jobs, strict=True)].index(False)]
        refused = run_subcommand(cluster, "stop", shared)
        assert refused.code == 2
        assert refused.reason == f"launch: {shared!r} matches several jobs: {jobs[1]}, {jobs[0]}"
        assert run_subcommand(cluster, "stop", jobs[0][: len(shared) + 1]).code == 0
        assert run_subcommand(cluster, "stop").lines == [f"{jobs[1]} CANCELLED"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["stop"], "launch: no job is running"),
        (["status"], "launch: there is no job yet"),
        (["logs"], "launch: there is no job yet"),
        (["stop", "x"], "launch: there is no job yet"),
        (["list", "x"], "launch: unrecognized arguments: x; usage: launch list [-h] [--json]"),
        (["status", "--jsn"], "launch: unrecognized arguments: --jsn; usage: launch status [-h] [--json] [JOB]"),
        (["logs", "--rank", "1", "--node", "a"], "launch: argument --node: not allowed with argument "),
    ],
)
def test_wrong_line_of_a_subcommand_is_a_usage_error(cluster: LoopbackCluster, words: list[str], reason: str) -> None:
    result = run_subcommand(cluster, *words)
    assert (result.code, result.stdout, result.stderr.count(b"\n")) == (2, b"", 1)
    assert result.reason.startswith(reason)


def test_command_named_as_a_subcommand_runs_after_two_dashes(cluster: LoopbackCluster) -> None:
    cluster.write_program("list", "echo a program of mine")
    path = f"{cluster.directory}/bin:{cluster.environment['PATH']}"
    result = cluster.run("-n", "1", "--", "list", "all", environment={"PATH": path})
    assert result.lines == [f"{FIRST} [0] a program of mine"]


def test_list_ends_when_its_reader_does(cluster: LoopbackCluster) -> None:
    for number in range(2000):
        job = replace(RECORD, id=f"20261122-00000{number:05}")
        directory(cluster, job).mkdir(parents=True)
        write_record(directory(cluster, job), replace(job, state=JobState.FAILED))
    command = f"{sys.executable} '{LAUNCHER}' list | head -1"
    ended = subprocess.run(
        ["bash", "-c", command], env=cluster.environment, capture_output=True, timeout=60, check=True
    )
    assert ended.stderr == b""


# ---- logs ----


def test_logs_of_a_rank_and_of_a_node_are_read_on_the_node(cluster: LoopbackCluster) -> None:
    cluster.run("-n", "2", "--nproc-per-node", "2", "echo out $RANK; printf 'no end'")
    assert run_subcommand(cluster, "logs", "--rank", "0").stdout == b"out 0\nno end"
    assert run_subcommand(cluster, "logs", "--rank", "3").stdout == b"out 3\nno end"
    assert run_subcommand(cluster, "logs", "--node", SECOND).lines == [
        "[rank-2] no end",
        "[rank-2] out 2",
        "[rank-3] no end",
        "[rank-3] out 3",
    ]
    job = record(cluster)
    assert (
        run_subcommand(cluster, "logs", "--node", "x").reason
        == f"launch: --node must be one of {FIRST}, {SECOND}, got 'x'"
    )
    ranks = "rank-0, rank-1, rank-2, rank-3"
    refused = run_subcommand(cluster, "logs", "--rank", "4").reason
    assert refused == f"launch: --rank must name a process of job {job.id}, which has {ranks}, got '4'"
    assert run_subcommand(cluster, "logs").reason.startswith(
        f"launch: job {job.id} was not detached: its output went to its terminal; "
    )


@pytest.mark.parametrize("rank", ["0", "1"])
def test_logs_are_followed_until_the_job_ends(cluster: LoopbackCluster, rank: str) -> None:
    go = cluster.directory / "go"
    line = f"echo before; until [ -e {go} ]; do sleep 0.1; done; echo after; sleep 1000"
    with cluster.start("-n", "2", line) as launcher:
        read_lines(launcher.stdout, 2)
        command = [sys.executable, str(LAUNCHER), "logs", "-f", "--rank", rank]
        with subprocess.Popen(command, env=cluster.environment, stdout=subprocess.PIPE) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"before\n"
            go.touch()
            assert reader.stdout.readline() == b"after\n"
            run_subcommand(cluster, "stop")
            assert reader.wait(60) == 0
