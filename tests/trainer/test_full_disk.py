"""A disk that is full: a real one, which holds one checkpoint and not two."""

import os
import subprocess
import sys
from pathlib import Path

from tests.trainer.processes import REPOSITORY

SCRIPT = """
# LeNet's weights and momentum take 3.5 MB.
mount -t tmpfs -o size=5m none "$1" && cd "$1" || exit 70
train() { "$0" -m trainer --num-epochs 2 --batch-size 500 --benchmark 1; echo "exit $?" >&2; }
train
mount -o remount,size=50m . || exit 70
train
"""


def test_the_checkpoint_before_stays_and_the_training_goes_on_from_it(tmp_path: Path) -> None:
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", SCRIPT, sys.executable, tmp_path],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    first, second = done.stderr.split("exit 1\n")
    assert "cannot write checkpoint checkpoints/lenet-0002.npz, No space left on device" in first
    assert "going on at epoch 1 sample 0" in second
    assert second.endswith("exit 0\n")
    assert "checkpoint=checkpoints/lenet-0002.npz" in done.stdout
