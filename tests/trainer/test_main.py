"""Test the lines that a run of the whole program logs."""

import re
from pathlib import Path

from tests.trainer.programs.processes import run, running


def test_missing_data_is_reported_before_torch_is_loaded(tmp_path: Path) -> None:
    options = ("--network", "resnet20", "--dataset", "cifar10", "--data-dir", "nowhere")
    # Python then prints its imports to standard error.
    with running(*options, directory=tmp_path, variables={"PYTHONPROFILEIMPORTTIME": "1"}) as [rank]:
        assert rank.wait() == 1
    output = rank.log.read_text()
    assert "packed or unpacked, in nowhere: get one from https://" in output
    imported = set(re.findall(r"\| +(\S+)$", output, flags=re.MULTILINE))
    assert "numpy" in imported
    assert "torch" not in imported


def test_rank_0_logs_the_sample_counts_once(tmp_path: Path) -> None:
    options = ("--benchmark", "1", "--num-examples", "64", "--num-epochs", "1")
    first, second = (rank.log.read_text() for rank in run(*options, directory=tmp_path, count=2))
    assert first.count("dataset synthetic: 64 training and 12 validation samples of 10 classes\n") == 1
    assert "dataset" not in second
    # Two processes train one network unless --kv-store specifies otherwise.
    assert "global batch size 128," in first


def test_independent_ranks_warn_in_their_last_line(tmp_path: Path) -> None:
    options = ("--benchmark", "1", "--num-examples", "64", "--num-epochs", "1", "--kv-store", "device")
    for rank in run(*options, directory=tmp_path, count=2):
        assert "--kv-store device does not communicate, 2 processes" in rank.log.read_text().splitlines()[-1]
