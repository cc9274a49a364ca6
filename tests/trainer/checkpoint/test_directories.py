"""Test that rank 0 names the ranks whose checkpoint directory differs from its own."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from trainer.backend import Backend
from trainer.checkpoint.shared_dir import checkpoint_directory, detect_another_directory
from trainer.distributed.data_parallel import DataParallelGroup


class OtherDirectories:
    """Backend of rank 0, whose other ranks have their checkpoints in other directories."""

    def all_reduce(self, values: Sequence[float]) -> list[float]:
        return [own or float(rank > 0) for rank, own in enumerate(values)]

    def broadcast_object(self, value: str, *, source: int) -> str:
        return value


@pytest.mark.parametrize(
    ("prefix", "directory"),
    [
        ("net", "~/here"),
        ("checkpoints/net", "~/here/checkpoints"),
        ("~/runs/net", "~/runs"),
        ("/data/runs/net", "/data/runs"),
    ],
)
@pytest.mark.parametrize("home", ["ubuntu", "root"])
def test_directory_below_home_is_equal_for_every_user(
    prefix: str, directory: str, home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / home / "here").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / home / "here")
    monkeypatch.setenv("HOME", str(tmp_path / home))
    assert checkpoint_directory(prefix) == directory


@pytest.mark.parametrize(("count", "named"), [(3, "1, 2"), (65, "1, 2, 3, 4, 5 and 59 more")])
def test_rank_0_names_ranks_with_another_directory(count: int, named: str, caplog: pytest.LogCaptureFixture) -> None:
    backend = cast(Backend, OtherDirectories())
    with caplog.at_level(logging.WARNING):
        assert not detect_another_directory(backend, "/data/net", dp=DataParallelGroup(world_size=count))
    [line] = caplog.messages
    assert line.startswith(f"checkpoints of rank {named} are not in rank 0's directory /data, ")


def test_no_warning_if_all_ranks_share_one_directory(caplog: pytest.LogCaptureFixture) -> None:
    assert not detect_another_directory(cast(Backend, OtherDirectories()), "net", dp=DataParallelGroup())
    assert caplog.messages == []
