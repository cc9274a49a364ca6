"""Test metrics as JSON lines and for TensorBoard, also on a full disk."""

import errno
import json
import logging
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]  # it has no types
    EventAccumulator,
)

from trainer.errors import TrainerError
from trainer.metrics.metric_writers import Metrics, MetricWriters, open_writers


def test_json_lines_are_appended_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "new" / "metrics.jsonl"
    for epoch in (0, 1):
        with open_writers(metrics=str(path), tensorboard=None) as records:
            records.write({"train/loss": 0.5}, epoch=epoch, samples=64)
            # A program that follows the file sees it now.
            assert len(path.read_text().splitlines()) == epoch + 1
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line.pop("time") > 1.7e9 for line in lines] == [True, True]
    assert lines == [{"epoch": epoch, "samples": 64, "train/loss": 0.5} for epoch in (0, 1)]


def test_tensorboard_reads_the_events(tmp_path: Path) -> None:
    with open_writers(metrics=None, tensorboard=str(tmp_path)) as records:
        records.write({"train/loss": 0.5}, epoch=0, samples=64)
        records.write({"train/loss": 0.25}, epoch=1, samples=128)
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(64, 0.5), (128, 0.25)]
    assert [event.value for event in events.Scalars("epoch")] == [0, 1]


def test_unwritable_metrics_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match=f"cannot write metrics to {tmp_path}: Is a directory"):
        open_writers(metrics=str(tmp_path), tensorboard=None)


def test_full_disk_stops_metrics_but_not_training(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), open_writers(metrics="/dev/full", tensorboard=None) as records:
        records.write({"train/loss": 0.5}, epoch=0, samples=64)
        records.write({"train/loss": 0.5}, epoch=0, samples=128)
    assert [record.message for record in caplog.records] == [
        "stopped writing metrics to /dev/full: No space left on device"
    ]


def test_failing_close_of_metrics_does_not_stop_training(caplog: pytest.LogCaptureFixture) -> None:
    class Full:
        """A disk that is full when the last metrics are written."""

        def write(self, figures: Metrics, *, epoch: int, samples: int) -> None:
            pass

        def close(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        def __str__(self) -> str:
            return "events"

    with caplog.at_level(logging.WARNING), MetricWriters([Full()]):
        pass
    assert caplog.messages == ["some metrics are missing from events: No space left on device"]
