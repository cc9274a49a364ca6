"""Kill any rank with kill -9, in a step or in the middle of a write: the run still ends with the same bits.

KILLS=20 runs that many kills (make soak), each drawn only from its number. For every ten, and at least once, another
kill is followed by a resume on another number of ranks, which reaches similar accuracy, if not the same bits.
"""

import os
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.trainer.programs.processes import Rank, run, running
from trainer.checkpoint.format import Checkpoint, load_checkpoint

ROUNDS = int(os.environ.get("KILLS", "3"))
RANKS = 2
EPOCHS = 3
STEPS = 12
"""Steps per epoch; the last one has half of the samples."""
OPTIONS = (
    *("--kv-store", "dist_sync", "--num-epochs", str(EPOCHS), "--batch-size", "16", "--model-prefix", "net"),
    *("--network", "tests.trainer.networks:dropout_and_batch_norm", "--benchmark", "1", "--image-shape", "3,16,16"),
    *("--num-examples", "368", "--last-batch", "keep", "--random-crop", "1", "--random-mirror", "1"),
    *("--lr", "0.02", "--lr-batch-size", "16", "--warmup-epochs", "1.5", "--lr-step-epochs", "2"),
)
EVERY_STEP = ("--checkpoint-seconds", "0.000001")
PROGRAM = ("-m", "tests.trainer.programs.killed_trainer")


@dataclass(frozen=True, kw_only=True, slots=True)
class Kill:
    """Point at which to kill a rank, as tests.trainer.programs.killed_trainer expects it."""

    rank: int
    place: str
    number: int
    part: float = 0.0
    """Fraction of the file that is written before the kill."""
    disk_is_lost: bool = False
    """True if the machine and its files are lost."""
    ranks_after: int = RANKS
    """Number of ranks that resume."""


def draw(number: int) -> Kill:
    """Draw a kill: every third round kills in a step; the others leave half a file, some of them the final one."""
    chance = random.Random(number)
    rank = chance.randrange(RANKS)
    if number % 3 == 0:
        step = chance.randint(2, EPOCHS * STEPS)
        return Kill(rank=rank, place="step", number=step, disk_is_lost=chance.random() < 0.5)
    # One file per step and one per epoch; only rank 0 writes the last one, the final checkpoint.
    last = EPOCHS * (STEPS + 1)
    if number % 9 == 1:
        return Kill(rank=0, place="write", number=last, part=chance.random())
    return Kill(rank=rank, place="write", number=chance.randint(2, last - 1), part=chance.random())


def draw_for_others(number: int) -> Kill:
    """Draw a kill in a step, after which one rank or three resume."""
    chance = random.Random(f"others {number}")
    step = chance.randint(2, EPOCHS * STEPS)
    return Kill(rank=chance.randrange(RANKS), place="step", number=step, ranks_after=(1, 3)[number % 2])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("undisturbed")
    run(*OPTIONS, directory=directory, count=RANKS)
    return directory / f"net-{EPOCHS:04d}.npz"


def machines(directory: Path, *, count: int = RANKS) -> list[Path]:
    """Return a directory for each rank."""
    places = [directory / f"machine{rank}" for rank in range(count)]
    for place in places:
        place.mkdir(exist_ok=True)
    return places


def run_until_killed(plan: Kill, directory: Path, *, size: int) -> None:
    """Train until the rank is killed and the other ranks have noticed it."""
    variables = {
        "KILL_RANK": f"{plan.rank}",
        "KILL_AT": plan.place,
        "KILL_COUNT": f"{plan.number}",
        "KILL_BYTES": f"{max(1, int(plan.part * size))}",
    }
    with running(
        *(*OPTIONS, *EVERY_STEP),
        directory=directory,
        directories=machines(directory),
        count=RANKS,
        program=PROGRAM,
        variables=variables,
    ) as ranks:
        codes = [rank.wait() for rank in ranks]
    assert codes[plan.rank] == -9, ranks[plan.rank].log.read_text()
    assert codes[1 - plan.rank] == 1, ranks[1 - plan.rank].log.read_text()


def resume_ranks(directory: Path, *, count: int) -> list[Rank]:
    places = machines(directory, count=count)
    with running(*OPTIONS, directory=directory, directories=places, count=count) as ranks:
        for rank in ranks:
            assert rank.wait() == 0, rank.log.read_text()
    return ranks


def assert_same(found: Checkpoint, expected: Checkpoint) -> None:
    """Check that weights, BatchNorm's statistics and momentum are equal bit for bit."""
    for own, other in (found.state.weights, expected.state.weights), (found.state.optimizer, expected.state.optimizer):
        assert own.keys() == other.keys()
        for name, value in own.items():
            assert value.tobytes() == other[name].tobytes(), name
            assert np.isfinite(value).all()


def assert_alike(found: Checkpoint, expected: Checkpoint) -> None:
    """Check for similar accuracy: the step size changed after resuming."""
    accuracies = [checkpoint.metadata.validation_accuracy for checkpoint in (found, expected)]
    assert accuracies[0] == pytest.approx(accuracies[1], abs=0.25)
    assert all(np.isfinite(value).all() for value in found.state.weights.values())


def best_accuracy(*places: Path) -> float:
    """Return the validation accuracy of the best network that one of the machines has."""
    bests = [load_checkpoint(path).metadata for place in places for path in place.glob("net-best.npz")]
    return max(best.validation_accuracy or 0.0 for best in bests)


def kill_and_resume(kill: Kill, directory: Path, undisturbed: Path) -> Checkpoint:
    """Kill a rank, resume to the end, and return the run's files."""
    run_until_killed(kill, directory, size=undisturbed.stat().st_size)
    places = machines(directory)
    kept = {path: load_checkpoint(path) for place in places for path in place.glob("net-resume-*.npz")}
    assert kept
    if kill.place == "write":
        assert list(places[kill.rank].glob(".*.tmp"))
    if kill.disk_is_lost:
        for path in places[kill.rank].iterdir():
            path.unlink()
    ranks = resume_ranks(directory, count=kill.ranks_after)
    assert "resuming at epoch" in ranks[0].log.read_text()
    assert len({rank.digests[-1] for rank in ranks}) == 1
    left = machines(directory, count=kill.ranks_after)
    if kill.ranks_after == RANKS:
        # Whichever machine was lost, another one still has it: no worse epoch has replaced it.
        assert best_accuracy(*places) == best_accuracy(undisturbed.parent)
    assert not [path for place in left for path in place.iterdir() if path.suffix == ".tmp" or "resume" in path.name]
    return load_checkpoint(places[0] / undisturbed.name)


@pytest.mark.parametrize("number", range(ROUNDS))
def test_killed_rank_does_not_change_the_final_weights(tmp_path: Path, undisturbed: Path, number: int) -> None:
    assert_same(kill_and_resume(draw(number), tmp_path, undisturbed), load_checkpoint(undisturbed))


@pytest.mark.parametrize("number", range(max(1, ROUNDS // 10)))
def test_other_rank_count_reaches_similar_accuracy(tmp_path: Path, undisturbed: Path, number: int) -> None:
    assert_alike(kill_and_resume(draw_for_others(number), tmp_path, undisturbed), load_checkpoint(undisturbed))


def test_first_rounds_kill_in_a_step_in_the_last_file_and_in_mid_epoch() -> None:
    first, second, third = map(draw, range(3))
    assert (first.place, second.place, third.place) == ("step", "write", "write")
    assert second.number == EPOCHS * (STEPS + 1)
    # Each epoch ends with one more.
    assert third.number < EPOCHS * (STEPS + 1)
    assert third.number % (STEPS + 1) not in (0, STEPS)
