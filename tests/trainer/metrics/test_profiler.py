"""Test the traces of --profile-steps."""

import json
import logging
from pathlib import Path

import pytest
import torch

from trainer.errors import TrainerError
from trainer.metrics.profiler import Profiler


def run(steps: int, *, profiler: Profiler) -> None:
    with profiler:
        for step in range(1, steps + 1):
            profiler.begin_step()
            torch.add(torch.zeros(step), 1)


def additions(path: Path) -> list[str]:
    """Return the shapes that were added, from the trace."""
    events = json.loads(path.read_text())["traceEvents"]
    return [str(event["args"]["Input Dims"][0]) for event in events if event.get("name") == "aten::add"]


def test_trace_holds_the_requested_steps_and_names_the_rank(tmp_path: Path) -> None:
    run(5, profiler=Profiler((2, 3), directory=str(tmp_path / "traces"), rank=4))
    [path] = (tmp_path / "traces").iterdir()
    assert path.name == "steps-2-3-rank4.pt.trace.json"
    assert additions(path) == ["[2]", "[3]"]


def test_run_that_ends_early_writes_a_partial_trace_and_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        run(3, profiler=Profiler((3, 9), directory=str(tmp_path)))
        run(3, profiler=Profiler((4, 9), directory=str(tmp_path)))
    [path] = tmp_path.iterdir()
    assert additions(path) == ["[3]"]
    assert caplog.messages[1:] == [
        "this run had 3 steps, --profile-steps asks for 3 to 9",
        "this run had 3 steps, --profile-steps asks for 4 to 9",
    ]


def test_unwritable_profile_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TrainerError, match=r"cannot write profiles to .*/file/traces: Not a directory"):
        Profiler((1, 1), directory=str(tmp_path / "file" / "traces"))


def test_failing_trace_write_does_not_stop_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    profiler = Profiler((1, 1), directory=str(tmp_path / "traces"))
    (tmp_path / "traces").rmdir()
    run(2, profiler=profiler)
    assert caplog.messages[0].startswith(f"no trace in {tmp_path}/traces/steps-1-1-rank0.pt.trace.json: ")
