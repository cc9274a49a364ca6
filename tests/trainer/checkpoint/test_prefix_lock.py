"""Two trainings never write the same checkpoints."""

import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from trainer.checkpoint.prefix_lock import lock_prefix, training_name
from trainer.errors import UsageError


def test_a_prefix_is_one_trainings_until_its_last_process_has_ended(tmp_path: Path) -> None:
    prefix = str(tmp_path / "net")
    first, second = lock_prefix(prefix, training="job a"), lock_prefix(prefix, training="job a")
    assert first is not None
    assert second is not None
    message = f"--model-prefix must be no other training's that runs on .*, got {prefix} of job a$"
    with pytest.raises(UsageError, match=message):
        lock_prefix(prefix, training="job b")
    os.close(first)
    with pytest.raises(UsageError, match=message):
        lock_prefix(prefix, training="job b")
    os.close(second)
    third = lock_prefix(prefix, training="job b")
    assert third is not None
    with pytest.raises(UsageError, match=r"of job b$"):
        lock_prefix(prefix, training="job a")
    os.close(third)


def test_of_trainings_that_begin_at_once_one_has_it(tmp_path: Path) -> None:
    prefix, together = str(tmp_path / "net"), threading.Barrier(8)
    held: list[tuple[str, int | None]] = []

    def begin(training: str) -> None:
        together.wait()
        with suppress(UsageError):
            held.append((training, lock_prefix(prefix, training=training)))

    threads = [threading.Thread(target=begin, args=(f"job {number % 2}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({training for training, _ in held}) == 1
    for _, file in held:
        assert file is not None
        os.close(file)


def test_another_prefix_is_another_claim(tmp_path: Path) -> None:
    held = [lock_prefix(str(tmp_path / name), training=name) for name in ("net", "net2")]
    assert None not in held
    for file in held:
        os.close(file or 0)


def test_where_nothing_can_be_written_nothing_is_held(tmp_path: Path) -> None:
    assert lock_prefix(str(tmp_path / "missing" / "net"), training="job a") is None


def test_a_training_is_known_by_its_job_or_by_where_its_ranks_meet() -> None:
    place = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1234"}
    assert training_name("j", place) == "job j"
    assert training_name("", place) == "ranks at 10.0.0.1:1234"
    assert training_name("", {}) == f"process {os.getpid()}"
