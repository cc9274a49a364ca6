"""Test that two runs never write the same checkpoints."""

import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from trainer.checkpoint.prefix_lock import lock_prefix, run_name
from trainer.errors import UsageError


def test_prefix_is_locked_until_the_runs_last_process_ends(tmp_path: Path) -> None:
    prefix = str(tmp_path / "net")
    first, second = lock_prefix(prefix, run="job a"), lock_prefix(prefix, run="job a")
    assert first is not None
    assert second is not None
    message = f"--model-prefix {prefix} is in use on .* by job a$"
    with pytest.raises(UsageError, match=message):
        lock_prefix(prefix, run="job b")
    os.close(first)
    with pytest.raises(UsageError, match=message):
        lock_prefix(prefix, run="job b")
    os.close(second)
    third = lock_prefix(prefix, run="job b")
    assert third is not None
    with pytest.raises(UsageError, match=r"by job b$"):
        lock_prefix(prefix, run="job a")
    os.close(third)


def test_one_of_two_simultaneous_runs_gets_the_lock(tmp_path: Path) -> None:
    prefix, together = str(tmp_path / "net"), threading.Barrier(8)
    held: list[tuple[str, int | None]] = []

    def begin(run: str) -> None:
        together.wait()
        with suppress(UsageError):
            held.append((run, lock_prefix(prefix, run=run)))

    threads = [threading.Thread(target=begin, args=(f"job {number % 2}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({run for run, _ in held}) == 1
    for _, file in held:
        assert file is not None
        os.close(file)


def test_other_prefix_is_a_separate_lock(tmp_path: Path) -> None:
    held = [lock_prefix(str(tmp_path / name), run=name) for name in ("net", "net2")]
    assert None not in held
    for file in held:
        os.close(file or 0)


def test_unwritable_directory_is_not_locked(tmp_path: Path) -> None:
    assert lock_prefix(str(tmp_path / "missing" / "net"), run="job a") is None


def test_run_is_named_by_its_job_or_rendezvous_address() -> None:
    place = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1234"}
    assert run_name("j", place) == "job j"
    assert run_name("", place) == "ranks at 10.0.0.1:1234"
    assert run_name("", {}) == f"process {os.getpid()}"
