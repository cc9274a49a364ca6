"""Test a disk that takes longer for a checkpoint than ranks wait for each other."""

import time
from pathlib import Path
from typing import cast

import pytest

from tests.trainer.checkpoint.fake_store import FakeStore, TwoRankBackend, make_manager
from tests.trainer.programs.processes import running
from trainer.backend import Backend
from trainer.progress import Progress
from trainer.timeouts import CHECKPOINT_STALL_TIMEOUT_S

OPTIONS = (
    *("--kv-store", "dist_sync", "--num-epochs", "1", "--batch-size", "16", "--benchmark", "1"),
    *("--num-examples", "96", "--model-prefix", "net", "--disp-batches", "1", "--checkpoint-seconds", "0.000001"),
)
PATIENCE_S = 8.0
PROGRAM = ("-m", "tests.trainer.programs.slow_disk_trainer")


def test_all_ranks_wait_for_a_slow_disk(tmp_path: Path) -> None:
    variables = {"PATIENCE_S": str(PATIENCE_S)}
    places = [tmp_path / f"machine{rank}" for rank in range(2)]
    for place in places:
        place.mkdir()
    with running(
        *OPTIONS, directory=tmp_path, directories=places, count=2, program=PROGRAM, variables=variables
    ) as ranks:
        # Every step saves a checkpoint: the second one waits until the first one is written.
        ranks[1].wait_for_log(f"still writing the previous checkpoint to {places[1]} (slow disk); waiting up to 1800 s")
        time.sleep(PATIENCE_S + 0.5)
        assert [rank.process.poll() for rank in ranks] == [None, None]
        (places[1] / "go").touch()
        assert [rank.wait() for rank in ranks] == [0, 0], ranks[0].log.read_text()
    assert "Batch [3]" in ranks[0].log.read_text()


def test_only_rank_0_writes_to_a_shared_directory(tmp_path: Path) -> None:
    # Rank 1's disk would block a write indefinitely.
    with running(*OPTIONS, directory=tmp_path, count=2, program=PROGRAM, variables={"PATIENCE_S": "60"}) as ranks:
        assert [rank.wait() for rank in ranks] == [0, 0], ranks[0].log.read_text()
    assert "previous checkpoint" not in ranks[1].log.read_text()
    assert {path.name for path in tmp_path.glob("net*")} == {"net-0001.npz", "net-best.npz"}


@pytest.mark.parametrize(
    ("is_writing", "other_is_writing", "timeouts"),
    [(False, 0, []), (True, 0, [CHECKPOINT_STALL_TIMEOUT_S]), (False, 1, [CHECKPOINT_STALL_TIMEOUT_S])],
)
def test_pending_write_on_one_rank_extends_all_timeouts(
    is_writing: bool, other_is_writing: int, timeouts: list[float]
) -> None:
    store, others = FakeStore(), TwoRankBackend(is_writing=[other_is_writing])
    store.is_writing = is_writing
    make_manager(store).save(cast(Backend, others), Progress(run_started_at=1, samples=8))
    assert others.timeouts == timeouts
    assert len(store.saved) == 1
