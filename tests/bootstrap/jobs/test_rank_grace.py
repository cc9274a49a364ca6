"""Test how long the ranks on a node may take to save, from lock files that any process of the login user can write."""

import errno
import fcntl
import os
import pwd
import socket
from functools import partial
from pathlib import Path

import pytest

from bootstrap.contract import MAX_GRACE_S
from bootstrap.jobs.job_directories import JOBS
from bootstrap.jobs.rank_grace import LOCK_SUFFIX, longest_grace_s
from launcher.job_records.lock import acquire_lock, write_grace_period
from launcher.paths import LOCK_FILE
from launcher.runner.run_lock import acquire_run_lock
from launcher.runner.runner_channel import RunnerChannel
from launcher.spec import NodeSpec

USER = pwd.getpwuid(os.getuid())
JOB = "20261123-100000-000aaaa"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / USER.pw_dir.lstrip("/")


def hold(request: pytest.FixtureRequest, lock: Path, content: str) -> None:
    """Hold a file with this content like a process of a job."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text(content)
    held = os.open(lock, os.O_RDONLY)
    request.addfinalizer(partial(os.close, held))
    fcntl.flock(held, fcntl.LOCK_EX)


def test_runner_and_launcher_write_the_grace_of_their_ranks(tmp_path: Path, home: Path) -> None:
    assert longest_grace_s(tmp_path, USER.pw_name) == 0
    ours, theirs = socket.socketpair()
    spec = NodeSpec(job_id=JOB, host="w/2", processes=(), environment={}, peer="127.0.0.1", cwd="/", grace_s=60.0)
    assert acquire_run_lock(spec, RunnerChannel(source=ours.detach(), sink=theirs.detach()), home=str(home))
    assert longest_grace_s(tmp_path, USER.pw_name) == 60
    launcher = home / JOBS / "20261123-100001-000aaaa"
    launcher.mkdir()
    acquire_lock(launcher)
    assert longest_grace_s(tmp_path, USER.pw_name) == 60
    write_grace_period(launcher, 300)
    assert longest_grace_s(tmp_path, USER.pw_name) == 300
    write_grace_period(launcher, 0)
    assert longest_grace_s(tmp_path, USER.pw_name) == 60


def test_reader_sees_the_former_or_the_new_grace(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, write, seen = home / JOBS / JOB, os.pwrite, list[float]()
    directory.mkdir(parents=True)
    acquire_lock(directory)
    write_grace_period(directory, 600)

    def spy(lock: int, data: bytes, offset: int) -> int:
        seen.append(longest_grace_s(tmp_path, USER.pw_name))
        written = write(lock, data, offset)
        seen.append(longest_grace_s(tmp_path, USER.pw_name))
        return written

    monkeypatch.setattr(os, "pwrite", spy)
    write_grace_period(directory, 60)
    write_grace_period(directory, 300)
    assert seen == [600, 60, 60, 300]


def test_job_that_is_over_delays_nothing(tmp_path: Path, home: Path) -> None:
    directory = home / JOBS / JOB
    directory.mkdir(parents=True)
    (directory / LOCK_FILE).write_text("60\n")
    assert longest_grace_s(tmp_path, USER.pw_name) == 0


@pytest.mark.parametrize("content", ["", "60", "-60\n", "1e3\n", "60\n60\n", "nan\n", "٦\n", "9" * 10 + "\n"])
def test_lock_without_a_valid_number_delays_nothing(
    tmp_path: Path, home: Path, request: pytest.FixtureRequest, content: str
) -> None:
    hold(request, home / JOBS / JOB / LOCK_FILE, content)
    assert longest_grace_s(tmp_path, USER.pw_name) == 0


def test_grace_has_a_limit(tmp_path: Path, home: Path, request: pytest.FixtureRequest) -> None:
    hold(request, home / JOBS / JOB / LOCK_FILE, "999999999\n")
    assert longest_grace_s(tmp_path, USER.pw_name) == MAX_GRACE_S


def test_files_that_are_no_locks_do_not_stop_the_agent(
    tmp_path: Path, home: Path, request: pytest.FixtureRequest
) -> None:
    directory = home / JOBS / JOB
    hold(request, directory / LOCK_FILE, "30\n")
    hold(request, tmp_path / "elsewhere", "60\n")
    os.mkfifo(directory / "pipe.lock")
    (directory / "directory.lock").mkdir()
    (directory / "link.lock").symlink_to(tmp_path / "elsewhere")
    (home / JOBS / "file").touch()
    assert longest_grace_s(tmp_path, USER.pw_name) == 30
    assert longest_grace_s(tmp_path, "nobody-of-this-name") == 0


def test_unreadable_job_does_not_hide_the_grace_of_others(
    tmp_path: Path, home: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(request, home / JOBS / JOB / LOCK_FILE, "30\n")
    unreadable, scan = home / JOBS / "20261123-100002-000aaaa", os.scandir
    unreadable.mkdir()

    def refuse(path: Path) -> object:
        if path == unreadable:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert longest_grace_s(tmp_path, USER.pw_name) == 30


def test_lock_files_are_recognized_by_name() -> None:
    assert LOCK_FILE.endswith(LOCK_SUFFIX)
