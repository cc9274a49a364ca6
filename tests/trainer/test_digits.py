"""The defaults learn the digits, however the program is started."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.trainer.processes import REPOSITORY, run
from trainer.checkpoint import load

ACCURACY = re.compile(r"rank 0/\d Validation-accuracy=([\d.]+) images/s=([\d.]+) checkpoint=(\S+)\n")


@pytest.mark.parametrize("count", [1, 3])
def test_recognises_97_percent_of_the_held_out_digits(tmp_path: Path, count: int) -> None:
    # As the article's command is on a machine without GPUs, and as the cluster starts it: a linked directory.
    link = tmp_path / "trainer"
    link.symlink_to(REPOSITORY / "trainer")
    options = ("--gpus", "--network", "lenet", "--kv-store", "dist_sync")
    ranks = run(*options, directory=tmp_path, count=count, program=(str(link),))

    result = ACCURACY.fullmatch(ranks[0].out.read_text())
    assert result is not None
    assert float(result[1]) >= 0.97
    assert float(result[2]) > 0
    found = load(tmp_path / result[3])
    assert found.description.settings["network"] == "lenet"
    assert found.description.validation_accuracy == pytest.approx(float(result[1]), abs=1e-6)
    assert sum(np.size(value) for value in found.state.weights.values()) == 431_080
