"""Test `launch logs` on a node, while logs are written and rotated."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launcher.paths import JOBS_DIR
from launcher.runner import logs
from launcher.runner.logs import ProcessLog
from tests.launcher.loopback_cluster import LAUNCHER


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / JOBS_DIR / "j"
    directory.mkdir(parents=True)
    return directory


def command(*words: str) -> list[str]:
    return [sys.executable, "-I", "-S", str(LAUNCHER / "job_records" / "reader"), *words]


@contextmanager
def reading(home: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        command(*words), env={"HOME": str(home)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as reader:
        yield reader
        reader.kill()


@contextmanager
def running(directory: Path) -> Iterator[None]:
    """Keep a job running."""
    fd = os.open(directory, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_SH)
    yield
    os.close(fd)


def test_rotated_log_is_followed(tmp_path: Path, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_LOG_SIZE", 10)
    log = ProcessLog(str(directory / "rank-0.log"))
    with running(directory):
        log.write(b"first6")
        log.write(b"\nsecon\n")
        with reading(tmp_path, "-f", "j", "rank-0.log") as reader:
            assert reader.stdout is not None
            # The rotated part comes first.
            assert reader.stdout.read(13) == b"first6\nsecon\n"
            for word in (b"third67890", b"fourth7890"):
                log.write(word)
                assert reader.stdout.read(10) == word
            log.write(b"end")
            assert reader.stdout.read(3) == b"end"
    log.close()


def test_following_ends_with_the_job(tmp_path: Path, directory: Path) -> None:
    (directory / "rank-0.log").write_bytes(b"x\n")
    with running(directory):
        reader = subprocess.Popen(
            command("-f", "j", "rank-0.log"), env={"HOME": str(tmp_path)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"x\n"
        assert reader.poll() is None
        with (directory / "rank-0.log").open("ab") as file:
            file.write(b"last words")
    with reader:
        # Its input is still open, so only the job's end ends it.
        assert reader.stdout.read() == b"last words"
        assert reader.wait(60) == 0


def test_following_ends_when_the_reader_closes(tmp_path: Path, directory: Path) -> None:
    (directory / "rank-0.log").write_bytes(b"x\n")
    with running(directory), reading(tmp_path, "-f", "j", "rank-0.log") as reader:
        assert reader.stdin is not None
        reader.stdin.close()
        assert reader.wait(60) == 0


def test_removed_log_is_reported(tmp_path: Path) -> None:
    ended = subprocess.run(
        command("j", "rank-0.log"),
        env={"HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr == f"launch: {tmp_path}/{JOBS_DIR}/j/rank-0.log does not exist, or no longer\n".encode()
