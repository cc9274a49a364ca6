"""Test the marker of a completed run."""

from pathlib import Path

import pytest

from trainer.checkpoint.completion_marker import CompletionMarker, read_marker, write_marker


def test_written_marker_is_read_unchanged(tmp_path: Path) -> None:
    mark = CompletionMarker(
        run_started_at=1764000000.123456,
        job_id="20261122-1",
        settings={"lr": None, "lr_step_epochs": [2], "weight_decay": 0.1},
    )
    write_marker(tmp_path / "mark", mark)
    assert read_marker(tmp_path / "mark") == mark


@pytest.mark.parametrize("content", [None, b"", b"1764000000.1", b'{"other": 1}', b"\xff"])
def test_unreadable_marker_counts_as_none(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "mark").write_bytes(content)
    assert read_marker(tmp_path / "mark") == CompletionMarker()
