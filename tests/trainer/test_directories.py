import logging
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from trainer.directories import directory_of, is_elsewhere
from trainer.engines import Engine
from trainer.sampling import Shard


class Elsewhere:
    """The other ranks, whose directories are not rank 0's: they say nothing until they are asked."""

    def __init__(self, count: int) -> None:
        self._count = count

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        asked = len(values) == self._count
        return [own or float(asked and rank > 0) for rank, own in enumerate(values)]


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
def test_a_directory_in_the_home_directory_is_the_same_for_every_user(
    prefix: str, directory: str, home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / home / "here").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / home / "here")
    monkeypatch.setenv("HOME", str(tmp_path / home))
    assert directory_of(prefix) == directory


@pytest.mark.parametrize(("count", "named"), [(3, "1, 2"), (65, "1, 2, 3, 4, 5 and 59 more")])
def test_rank_0_names_who_keeps_checkpoints_elsewhere(count: int, named: str, caplog: pytest.LogCaptureFixture) -> None:
    engine = cast(Engine, Elsewhere(count))
    with caplog.at_level(logging.WARNING):
        assert not is_elsewhere(engine, "/data/net", shard=Shard(count=count))
    [line] = caplog.messages
    assert line.startswith(f"checkpoints of rank {named} are not in rank 0's directory /data, ")


def test_nothing_is_said_where_all_are_in_one_directory(caplog: pytest.LogCaptureFixture) -> None:
    assert not is_elsewhere(cast(Engine, Elsewhere(1)), "net", shard=Shard())
    assert caplog.messages == []
