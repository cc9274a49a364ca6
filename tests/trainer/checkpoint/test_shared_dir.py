"""Test that ranks notice when they share rank 0's checkpoint directory."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

from trainer.backend import Backend
from trainer.checkpoint.shared_dir import detect_shared_directory
from trainer.distributed.data_parallel import DataParallelGroup


class ThreadBackend:
    """Backend of one rank; the ranks are threads that wait for each other."""

    def __init__(self, rank: int, barrier: threading.Barrier, messages: dict[int, str]) -> None:
        self._rank = rank
        self._barrier = barrier
        self._messages = messages

    def all_reduce(self, values: Sequence[float]) -> list[float]:
        self._barrier.wait()
        return list(values)

    def broadcast_object(self, value: str, *, source: int) -> str:
        self._messages[self._rank] = value
        self._barrier.wait()
        return self._messages[source]


def ask_all_ranks(*prefixes: str | None) -> list[bool]:
    """Return for each rank whether it shares rank 0's directory."""
    count = len(prefixes)
    barrier, messages = threading.Barrier(count, timeout=60), dict[int, str]()
    with ThreadPoolExecutor(count) as threads:
        ranks = [
            threads.submit(
                detect_shared_directory,
                cast(Backend, ThreadBackend(rank, barrier, messages)),
                prefix,
                dp=DataParallelGroup(rank=rank, world_size=count),
            )
            for rank, prefix in enumerate(prefixes)
        ]
        return [rank.result(60) for rank in ranks]


@pytest.mark.parametrize("others", ["a link", "of its own"])
def test_ranks_detect_rank_0s_shared_directory(tmp_path: Path, others: str) -> None:
    for name in ("shared", "own"):
        (tmp_path / name).mkdir()
    # The same directory may be mounted at another path.
    (tmp_path / "a link").symlink_to(tmp_path / "shared")
    (tmp_path / "of its own").mkdir()
    prefixes = [f"{tmp_path}/{name}/net" for name in ("shared", "shared", "own", others)]
    assert ask_all_ranks(*prefixes, None) == [False, True, False, others == "a link", False]
    assert not list(tmp_path.glob("*/*"))


def test_unwritable_directory_of_rank_0_is_not_shared(tmp_path: Path) -> None:
    prefix = f"{tmp_path}/gone/net"
    assert ask_all_ranks(prefix, prefix) == [False, False]


def test_single_rank_shares_no_directory(tmp_path: Path) -> None:
    assert ask_all_ranks(f"{tmp_path}/net") == [False]
