"""A disk that takes longer for a checkpoint than ranks wait for each other."""

import time
from pathlib import Path

from tests.trainer.processes import running

OPTIONS = (
    *("--kv-store", "dist_sync", "--num-epochs", "1", "--batch-size", "16", "--benchmark", "1"),
    *("--num-examples", "96", "--model-prefix", "net", "--disp-batches", "1", "--checkpoint-seconds", "0.000001"),
)
PATIENCE_S = 8.0
PROGRAM = ("-m", "tests.trainer.slow_trainer")


def test_a_slow_disk_is_waited_for_by_all_ranks(tmp_path: Path) -> None:
    variables = {"PATIENCE_S": str(PATIENCE_S)}
    with running(*OPTIONS, directory=tmp_path, count=2, program=PROGRAM, variables=variables) as ranks:
        # It keeps a checkpoint a step: of the second step it cannot before that of the first is written.
        ranks[1].wait_for_log("waiting for the checkpoint before, . is slow: at most 1800 s")
        time.sleep(PATIENCE_S + 0.5)
        assert [rank.process.poll() for rank in ranks] == [None, None]
        (tmp_path / "go").touch()
        assert [rank.wait() for rank in ranks] == [0, 0], ranks[0].log.read_text()
    assert "Batch [3]" in ranks[0].log.read_text()
