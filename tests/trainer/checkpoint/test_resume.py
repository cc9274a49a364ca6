"""Test that an interrupted training run ends with the same weights as an uninterrupted one, bit for bit."""

import shutil
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.trainer.programs import stopped_trainer
from tests.trainer.programs.processes import Rank, run, running
from trainer.checkpoint.format import load_checkpoint

OPTIONS = (
    *("--kv-store", "dist_sync", "--num-epochs", "3", "--batch-size", "16", "--benchmark", "1"),
    *("--num-examples", "960", "--model-prefix", "net", "--disp-batches", "1"),
)
RANKS = 2
STEPS = 30
"""Steps per epoch."""
STOPPED = (str(Path(stopped_trainer.__file__)),)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    ranks = run(*OPTIONS, directory=tmp_path_factory.mktemp("undisturbed"), count=RANKS)
    return ranks[0].digests[-1]


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a run that SIGTERM stopped in its second epoch."""
    directory = tmp_path_factory.mktemp("interrupted")
    stopped = {stopped_trainer.VARIABLE: f"1 {STEPS + 8} SIGTERM"}
    with running(*OPTIONS, directory=directory, count=RANKS, program=STOPPED, variables=stopped) as ranks:
        assert [rank.wait() for rank in ranks] == [128 + signal.SIGTERM] * RANKS
    assert "SIGTERM: will save a checkpoint after this step" in ranks[1].log.read_text()
    assert "stopped by another rank's signal, with a checkpoint" in ranks[0].log.read_text()
    return directory


@pytest.fixture
def directory(interrupted: Path, tmp_path: Path) -> Path:
    """Return a copy of the interrupted run's directory."""
    return Path(shutil.copytree(interrupted, tmp_path / "copy"))


def has_resumed(rank: Rank) -> bool:
    return "resuming at epoch" in rank.log.read_text()


def test_run_resumes_at_the_next_step_after_sigterm(directory: Path, undisturbed: str) -> None:
    kept = max(directory.glob("net-resume-*"), key=lambda path: path.name)
    progress = load_checkpoint(kept).metadata.progress
    assert (progress.epoch, progress.samples % (RANKS * 16)) == (1, 0)
    assert progress.samples >= 7 * RANKS * 16
    ranks = run(*OPTIONS, directory=directory, count=RANKS)
    assert f"resuming at epoch 1 sample {progress.samples}, " in ranks[0].log.read_text()
    first_step = progress.samples // (RANKS * 16) + 1
    assert f"Batch [{first_step}]" in ranks[0].log.read_text()
    assert f"Epoch[1] Batch [{first_step - 1}]" not in ranks[0].log.read_text()
    assert ranks[0].digests[-1] == ranks[1].digests[-1] == undisturbed
    assert not list(directory.glob("net-resume-*"))


def blocked_signals(pid: int) -> list[int]:
    """Return the signal mask of each thread of a process."""
    masks = []
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        with suppress(OSError):  # The thread has ended.
            [mask] = [line.split()[1] for line in status.read_text().splitlines() if line.startswith("SigBlk:")]
            masks.append(int(mask, 16))
    return masks


def test_no_library_thread_receives_the_signal(tmp_path: Path) -> None:
    # So that it does not end before it is looked at.
    options = (*OPTIONS, "--num-epochs", "10000")
    with running(*options, directory=tmp_path, variables={"OMP_NUM_THREADS": "2"}) as [rank]:
        rank.wait_for_log("Epoch[0] Batch [2]")
        ending = 1 << signal.SIGTERM - 1 | 1 << signal.SIGINT - 1
        masks = blocked_signals(rank.process.pid)
        assert len(masks) > 2
        # The thread that waits for signals does not block them while waiting (sigwait(3)).
        assert sum(mask & ending != ending for mask in masks) == 1


def test_rank_without_disk_takes_another_ranks_checkpoint(directory: Path, tmp_path: Path, undisturbed: str) -> None:
    replaced = tmp_path / "replaced"
    replaced.mkdir()
    with running(*OPTIONS, directories=[replaced, directory], directory=tmp_path, count=RANKS) as ranks:
        assert [rank.wait() for rank in ranks] == [0] * RANKS
    assert "from the checkpoint of rank 1" in ranks[0].log.read_text()
    assert ranks[0].digests[-1] == undisturbed


def test_new_directory_of_rank_0_does_not_resume_another_ranks_run(directory: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    new.mkdir()
    home = {"HOME": str(tmp_path)}
    with running(*OPTIONS, directories=[new, directory], directory=tmp_path, count=RANKS, variables=home) as ranks:
        assert [rank.wait() for rank in ranks] == [2] * RANKS
    assert "checkpoints of rank 1 are not in rank 0's directory ~/new, " in ranks[0].log.read_text()
    for rank in ranks:
        assert "trainer: rank 1 has the checkpoint of an interrupted run in ~/copy, " in rank.log.read_text()
    assert list(directory.glob("net-resume-*"))


def test_fewer_ranks_resume(directory: Path) -> None:
    [alone] = run(*OPTIONS, directory=directory)
    assert has_resumed(alone)
    assert len(alone.digests) == 2


def test_machine_that_missed_the_end_does_not_revive_the_run(directory: Path, tmp_path: Path) -> None:
    absent = Path(shutil.copytree(directory, tmp_path / "absent"))
    run(*OPTIONS, directory=directory)
    places = [absent, directory]
    with running(*OPTIONS, "--lr", "0.01", directory=tmp_path, directories=places, count=RANKS) as ranks:
        assert [rank.wait() for rank in ranks] == [0] * RANKS
    assert not has_resumed(ranks[0])
    assert len(ranks[0].digests) == 3
    assert not list(absent.glob("net-resume-*"))


def test_checkpoint_of_another_run_on_one_rank_ends_all_ranks(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    places = [directory, tmp_path / "empty"]
    with running(*OPTIONS, "--lr", "0.01", directory=tmp_path, directories=places, count=RANKS) as ranks:
        assert [rank.wait() for rank in ranks] == [2] * RANKS
    for rank in ranks:
        assert "trainer: the interrupted run of net had --lr none, got 0.01: to start over" in rank.log.read_text()


def test_resume_never_starts_a_new_run(directory: Path, undisturbed: str) -> None:
    ranks = run(*OPTIONS, "--resume", "never", directory=directory, count=RANKS)
    assert not has_resumed(ranks[0])
    assert ranks[0].digests[-1] == undisturbed


def test_resume_never_is_ignored_after_a_restart(directory: Path, undisturbed: str) -> None:
    restarted = {"TORCHELASTIC_RESTART_COUNT": "1"}
    with running(*OPTIONS, "--resume", "never", directory=directory, count=RANKS, variables=restarted) as ranks:
        assert [rank.wait() for rank in ranks] == [0] * RANKS
    assert has_resumed(ranks[0])
    assert ranks[0].digests[-1] == undisturbed


def test_completed_run_is_not_repeated_after_a_kill_at_exit(tmp_path: Path) -> None:
    places = [tmp_path / f"machine{rank}" for rank in range(RANKS)]
    for place in places:
        place.mkdir()
    # Of repeated options, the last one counts.
    options = (*OPTIONS, "--num-epochs", "2", "--num-examples", "64")
    attempt = {"TORCHELASTIC_RUN_ID": "j", "KILL_RANK": "1", "KILL_AT": "mark", "KILL_COUNT": "1"}
    program = ("-m", "tests.trainer.programs.killed_trainer")
    with running(
        *options, directory=tmp_path, directories=places, count=RANKS, program=program, variables=attempt
    ) as ranks:
        assert [rank.wait() for rank in ranks] == [0, -signal.SIGKILL]
    end = places[0] / "net-0002.npz"
    trained = end.stat().st_mtime_ns
    assert list(places[1].glob("net-resume-*"))

    again = {"TORCHELASTIC_RUN_ID": "j", "TORCHELASTIC_RESTART_COUNT": "1"}
    with running(*options, directory=tmp_path, directories=places, count=RANKS, variables=again) as ranks:
        assert [rank.wait() for rank in ranks] == [0] * RANKS
    assert ranks[0].log.read_text().splitlines()[-1] == (
        "rank 0/2 training had completed before its job was restarted, nothing is left to do"
    )
    assert [rank.digests for rank in ranks] == [[]] * RANKS
    assert end.stat().st_mtime_ns == trained
    left = {path.name for path in places[1].iterdir() if path.suffix != ".lock"}
    assert left == {".net-finished", "net-best.npz"}


def test_interrupted_run_with_other_settings_is_reported(directory: Path) -> None:
    with running(*OPTIONS, "--lr", "0.01", directory=directory) as [rank]:
        assert rank.wait() == 2
    assert rank.log.read_text().splitlines()[-1] == (
        "trainer: the interrupted run of net had --lr none, got 0.01: "
        "to start over, pass --resume never; to keep both, pass another --model-prefix"
    )
    assert list(directory.glob("net-resume-*"))
