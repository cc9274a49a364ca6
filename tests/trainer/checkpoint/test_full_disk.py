"""Test a full disk: a real in-memory file system with room for one checkpoint but not for two."""

import os
import subprocess
import sys
from pathlib import Path

from tests.trainer.programs.processes import REPOSITORY

TRAINING = """
# LeNet's weights and momentum take 3.5 MB.
mount -t tmpfs -o size=5m none "$1" && cd "$1" || exit 70
train() { "$0" -m trainer --num-epochs 3 --benchmark 1 --num-examples 200; echo "exit $?" >&2; }
train
for file in checkpoints/*; do "$0" -c "$READ" "$file" || exit 70; done
mount -o remount,size=50m . || exit 70
train
"""
READ = """
import sys
from pathlib import Path
from trainer.checkpoint.format import load_checkpoint
path = Path(sys.argv[1])
print(path.name.partition("-resume")[0], load_checkpoint(path).metadata.progress.epoch)
"""
WITHOUT_LINKS = """
mount -t tmpfs -o size=1m none "$1" && cd "$1" && exec "$0" -c "$KEEP"
"""
KEEP = """
import errno, os
from pathlib import Path
import numpy as np
from trainer.checkpoint.format import Checkpoint, CheckpointMetadata, load_checkpoint
from trainer.backend import TrainingState
from trainer.checkpoint.store import CheckpointStore
from trainer.progress import Progress

def no_links(*_):
    raise OSError(errno.EPERM, "Operation not permitted")

os.link = no_links
store = CheckpointStore("net")
for epoch in (1, 2, 3):
    metadata = CheckpointMetadata(settings={}, progress=Progress(epoch=epoch))
    # Each takes 0.3 MB: the first and its copy, and the second, but not another copy.
    state = TrainingState(weights={"a": np.full(75_000, epoch, np.float32)})
    store.save(lambda: Checkpoint(metadata=metadata, state=state), is_best=True)
    store.wait_until_written()
print("best", load_checkpoint(Path("net-best.npz")).metadata.progress.epoch)
print("newest", store.load_newest().metadata.progress.epoch)
print(len([*Path().iterdir()]), "files")
"""


def run(script: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, sys.executable, directory],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
        | {"READ": READ, "KEEP": KEEP},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )


def test_training_continues_without_a_checkpoint_and_others_stay_readable(tmp_path: Path) -> None:
    done = run(TRAINING, tmp_path)
    first, second = done.stderr.split("exit 1\n")
    # The lost checkpoints are those of the second epoch and the final one.
    lost, end = [line for line in first.splitlines() if "No space left" in line]
    assert lost.startswith("rank 0/1 cannot write checkpoint checkpoints/lenet-resume-")
    assert lost.endswith("-0002-000000000.npz: No space left on device; training continues without it")
    assert end == (
        "rank 0/1 trainer: cannot write checkpoint checkpoints/lenet-0003.npz: No space left on device; "
        "rerun the same command to resume from the previous checkpoint"
    )
    assert "Traceback" not in first
    assert done.stdout.splitlines()[:2] == ["lenet-best.npz 1", "lenet 1"]
    assert "resuming at epoch 1 sample 0" in second
    assert second.endswith("exit 0\n")
    assert "checkpoint=checkpoints/lenet-0003.npz" in done.stdout


def test_full_disk_leaves_the_previous_best(tmp_path: Path) -> None:
    done = run(WITHOUT_LINKS, tmp_path)
    assert done.stderr.splitlines() == [
        "cannot write net-best.npz: No space left on device; the previous best stays",
        "cannot write checkpoint net-resume-0000000000.000000-0003-000000000.npz: No space left on device; "
        "training continues without it",
    ]
    assert done.stdout.splitlines() == ["best 1", "newest 2", "3 files"]
