"""Test that the defaults learn the digits, however the program is started."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.trainer.programs.processes import REPOSITORY, run
from trainer.checkpoint.format import load_checkpoint

ACCURACY = re.compile(r"rank 0/\d Validation-accuracy=([\d.]+) images/s=([\d.]+) checkpoint=(\S+)\n")


@pytest.mark.parametrize("count", [1, pytest.param(3, marks=pytest.mark.soak)])
def test_lenet_classifies_98_percent_of_the_validation_digits(tmp_path: Path, count: int) -> None:
    # --gpus has no value on a node without GPUs, and the cluster starts the trainer from a linked directory.
    link = tmp_path / "trainer"
    link.symlink_to(REPOSITORY / "trainer")
    options = ("--gpus", "--network", "lenet", "--kv-store", "dist_sync", "--metrics", "metrics.jsonl")
    ranks = run(*options, directory=tmp_path, count=count, program=(str(link),))

    result = ACCURACY.fullmatch(ranks[0].out.read_text())
    assert result is not None
    assert float(result[1]) >= 0.98
    assert float(result[2]) > 0
    # Only rank 0 writes them, once per epoch.
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    whole = 1437 // (64 * count) * 64 * count
    epochs = [line for line in lines if "validation/accuracy" in line]
    assert [(line["epoch"], line["samples"]) for line in epochs] == [(n, (n + 1) * whole) for n in range(12)]
    assert epochs[-1]["validation/accuracy"] == pytest.approx(float(result[1]), abs=1e-6)
    phases = [epochs[-1][f"seconds/{phase}"] for phase in ("data", "forward", "backward", "optimizer")]
    assert all(seconds > 0 for seconds in phases)
    assert ranks[0].log.read_text().count("time per phase: data=") == 12
    best = max(line["validation/accuracy"] for line in epochs)
    assert load_checkpoint(tmp_path / "checkpoints/lenet-best.npz").metadata.validation_accuracy == pytest.approx(best)
    found = load_checkpoint(tmp_path / result[3])
    assert found.metadata.settings["network"] == "lenet"
    assert found.metadata.validation_accuracy == pytest.approx(float(result[1]), abs=1e-6)
    assert sum(np.size(value) for value in found.state.weights.values()) == 431_080
