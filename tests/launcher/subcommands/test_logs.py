"""Test the logs that nodes keep of their ranks' output."""

import fcntl
import os
import re
from pathlib import Path

import pytest

from launcher.job_directories import KEPT_JOBS
from launcher.paths import JOBS_DIR
from launcher.runner import logs
from launcher.runner.logs import JobLogs
from launcher.spec import ProcessSpec
from tests.launcher.loopback_cluster import ADDRESSES, LoopbackCluster

FIRST, SECOND, _ = ADDRESSES
RANK = ProcessSpec(name="rank 3", label="0", command=("x",), environment={})


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))


def test_both_streams_of_every_rank_are_kept_on_its_node(cluster: LoopbackCluster, nodes: Path) -> None:
    result = cluster.run("-n", "2", "--nproc-per-node", "2", 'echo out $RANK; echo "err $RANK" >&2; exit 3')
    assert result.code == 3
    (where,) = re.findall(rb"launch: full log: (\S+):~/(\S+)/(rank-(\d)\.log)", result.stderr)
    host, directory, log, rank = (word.decode() for word in where)
    assert host in (FIRST, SECOND)
    # Two of the nodes are behind sshd, with another home.
    homes = {FIRST: Path(cluster.environment["HOME"]), SECOND: nodes}
    assert sorted((homes[host] / directory / log).read_text().split()) == sorted(["out", rank, "err", rank])
    assert [name for name in names(homes[FIRST] / directory) if "rank" in name] == ["rank-0.log", "rank-1.log"]
    assert [name for name in names(homes[SECOND] / directory) if "rank" in name] == ["rank-2.log", "rank-3.log"]
    assert (homes[FIRST] / directory).stat().st_mode & 0o077 == 0


def test_job_runs_without_logs_if_none_can_be_written(cluster: LoopbackCluster, tmp_path: Path) -> None:
    (tmp_path / ".local").write_text("no directory")
    result = cluster.run("-n", "1", "echo hello")
    assert (result.code, result.lines) == (0, [f"{FIRST} [0] hello"])
    logs, record = result.stderr.decode().splitlines()
    assert logs.startswith(f"launch: {FIRST}: no logs are kept: {tmp_path}/.local/")
    assert record.startswith(f"launch: no record of the job is kept: {tmp_path}/.local/")


def test_oldest_jobs_are_removed_unless_they_run(tmp_path: Path) -> None:
    jobs = tmp_path / JOBS_DIR
    for number in range(KEPT_JOBS + 5):
        (jobs / f"2026{number:04d}").mkdir(parents=True)
    (jobs / "20260000" / "deep" / "deeper").mkdir(parents=True)
    (jobs / "20260000" / "deep" / "rank-0.log").write_bytes(b"x")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (jobs / "20260000" / "link").symlink_to(elsewhere)
    running = os.open(jobs / "20260001", os.O_RDONLY)
    fcntl.flock(running, fcntl.LOCK_SH)
    JobLogs(tmp_path, "20270000").open(RANK).write(b"x")
    os.close(running)
    kept = [f"2026{number:04d}" for number in range(6, KEPT_JOBS + 5)]
    assert names(jobs) == ["20260001", *kept, "20270000"]
    assert (jobs / "20270000" / "rank-3.log").read_bytes() == b"x"
    assert names(elsewhere) == ["kept"]


def test_log_keeps_the_last_output_and_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_LOG_SIZE", 10)
    log = JobLogs(tmp_path, "j").open(RANK)
    for word in (b"first6", b"second", b"third6", b"last"):
        log.write(word)
    directory = tmp_path / JOBS_DIR / "j"
    assert names(directory) == ["rank-3.log", "rank-3.log.1"]
    assert (directory / "rank-3.log").read_bytes() == b"third6last"
    assert (directory / "rank-3.log.1").read_bytes() == b"second"


def open_files() -> set[str]:
    """Return what this process has open."""
    directory = Path("/proc/self/fd")
    return {str(fd.readlink()) for fd in directory.iterdir() if fd.is_symlink()}


def test_full_disk_ends_the_log_and_not_the_job(tmp_path: Path) -> None:
    (tmp_path / JOBS_DIR / "j").mkdir(parents=True)
    (tmp_path / JOBS_DIR / "j" / "rank-3.log").symlink_to("/dev/full")
    log = JobLogs(tmp_path, "j").open(RANK)
    log.write(b"x")
    log.write(b"y")
    assert "/dev/full" not in open_files()


def test_restarted_job_appends_to_its_log(cluster: LoopbackCluster) -> None:
    result = cluster.run("--max-restarts", "1", "echo attempt $TORCHELASTIC_RESTART_COUNT; exit 3", hosts=[FIRST])
    (log,) = re.findall(rb":~/(\S+)", result.stderr)
    kept = (Path(cluster.environment["HOME"]) / log.decode()).read_text()
    assert kept == "attempt 0\nattempt 1\n"
