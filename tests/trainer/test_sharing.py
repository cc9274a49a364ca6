import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

from trainer.engines import Engine
from trainer.sampling import Shard
from trainer.sharing import is_rank_0s


class Together:
    """Ranks that are threads, and wait for each other."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._barrier = threading.Barrier(count, timeout=60)
        self._said: list[Sequence[float]] = []

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        self._said.append(values)
        self._barrier.wait()
        sums = [sum(column) for column in zip(*self._said, strict=True)]
        if self._barrier.wait() == 0:
            self._said.clear()
        self._barrier.wait()
        return sums


def asked(*prefixes: str | None) -> list[bool]:
    """What each rank is told."""
    count = len(prefixes)
    engine = cast(Engine, Together(count))
    with ThreadPoolExecutor(count) as threads:
        ranks = [
            threads.submit(is_rank_0s, engine, prefix, shard=Shard(index=rank, count=count))
            for rank, prefix in enumerate(prefixes)
        ]
        return [rank.result(60) for rank in ranks]


@pytest.mark.parametrize("others", ["a link", "of its own"])
def test_who_shares_rank_0s_directory_knows(tmp_path: Path, others: str) -> None:
    for name in ("shared", "own"):
        (tmp_path / name).mkdir()
    # As it may be mounted elsewhere.
    (tmp_path / "a link").symlink_to(tmp_path / "shared")
    (tmp_path / "of its own").mkdir()
    prefixes = [f"{tmp_path}/{name}/net" for name in ("shared", "shared", "own", others)]
    assert asked(*prefixes, None) == [False, True, False, others == "a link", False]
    assert not list(tmp_path.glob("*/*"))


def test_nobody_relies_on_a_rank_0_that_cannot_write(tmp_path: Path) -> None:
    prefix = f"{tmp_path}/gone/net"
    assert asked(prefix, prefix) == [False, False]


def test_one_rank_shares_with_nobody(tmp_path: Path) -> None:
    assert asked(f"{tmp_path}/net") == [False]
