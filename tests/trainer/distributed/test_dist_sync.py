"""Test that dist_sync with n ranks of batch b equals one process with a batch of n*b."""

from pathlib import Path

import pytest

from tests.trainer.distributed.weights import EPOCHS, OPTIONS, distance
from tests.trainer.programs import dropped_reduce_trainer, short_timeout_trainer, stopped_trainer
from tests.trainer.programs.processes import run, running
from trainer.backend import Weights
from trainer.checkpoint.format import load_checkpoint

# 2,000 synthetic images: 18 global batches of 111 and one of 2, of which the first of 3 ranks has no sample.
BATCH_SIZE = 37
RANKS = 3
# The rate is low: max-pooling picks one of two nearly equal values, so that with larger steps, rounding errors alone
# may make two correct runs diverge.
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def weights_of_one_process(tmp_path_factory: pytest.TempPathFactory) -> Weights:
    directory = tmp_path_factory.mktemp("one")
    run(*OPTIONS, "--batch-size", str(RANKS * BATCH_SIZE), directory=directory)
    return load_checkpoint(directory / "net-0002.npz").state.weights


def test_three_ranks_match_one_process_with_their_batches(tmp_path: Path, weights_of_one_process: Weights) -> None:
    ranks = run(*OPTIONS, "--batch-size", str(BATCH_SIZE), directory=tmp_path, count=RANKS)

    found = load_checkpoint(tmp_path / "net-0002.npz")
    assert distance(found.state.weights, weights_of_one_process) < TOLERANCE
    assert found.metadata.progress.epoch == EPOCHS
    assert len(ranks[0].digests) == EPOCHS
    assert ranks[0].digests == ranks[1].digests == ranks[2].digests
    for number, rank in enumerate(ranks):
        first_line = rank.log.read_text().splitlines()[0]
        assert first_line.startswith(f"rank {number}/3 host=")
        assert f"instance=i-{number:017x}" in first_line
        assert "device=cpu threads=1" in first_line
        assert "global batch size 111" in rank.log.read_text()
    assert ranks[0].out.read_text().count("Validation-accuracy=") == 1
    assert ranks[1].out.read_text() == ranks[2].out.read_text() == ""


def test_dropped_all_reduce_changes_the_weights(tmp_path: Path, weights_of_one_process: Weights) -> None:
    program = (str(Path(dropped_reduce_trainer.__file__)),)
    ranks = run(*OPTIONS, "--batch-size", str(BATCH_SIZE), directory=tmp_path, count=RANKS, program=program)

    assert len({rank.digests[0] for rank in ranks}) == RANKS
    assert distance(load_checkpoint(tmp_path / "net-0002.npz").state.weights, weights_of_one_process) > TOLERANCE


def test_killed_rank_ends_the_others(tmp_path: Path) -> None:
    options = ("--kv-store", "dist_sync", "--num-epochs", "1000", "--disp-batches", "1")
    with running(*options, directory=tmp_path, count=2) as ranks:
        ranks[0].wait_for_log("Batch [1]")
        ranks[1].process.kill()
        assert ranks[0].wait() == 1
    last_line = ranks[0].log.read_text().splitlines()[-1]
    assert last_line.startswith("rank 0/2 trainer: the all-reduce failed: another rank ended")


def test_hanging_rank_ends_the_others(tmp_path: Path) -> None:
    options = ("--kv-store", "dist_sync", "--num-epochs", "1000", "--disp-batches", "1")
    program = (str(Path(short_timeout_trainer.__file__)),)
    hangs = {stopped_trainer.VARIABLE: "1 3 SIGSTOP"}
    with running(*options, directory=tmp_path, count=2, program=program, variables=hangs) as ranks:
        assert ranks[0].wait() == 1
    last_line = ranks[0].log.read_text().splitlines()[-1]
    assert "the all-reduce failed: another rank ended, or was silent for 2 s: " in last_line


def test_sigterm_ends_a_rank_that_waits_for_another(tmp_path: Path) -> None:
    with running("--kv-store", "dist_sync", directory=tmp_path, count=2, started=1) as ranks:
        ranks[0].wait_for_log("waiting for 2 ranks")
        ranks[0].process.terminate()
        assert ranks[0].wait() == 143
    assert "Traceback" not in ranks[0].log.read_text()
