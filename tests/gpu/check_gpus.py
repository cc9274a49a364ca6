"""The trainer on two GPUs of one machine: NCCL."""

import tempfile
import unittest
from pathlib import Path

import numpy as np

from tests.trainer.processes import run, running
from trainer.checkpoint import load
from trainer.engines import Weights

OPTIONS = (
    *("--benchmark", "1", "--num-examples", "600", "--num-epochs", "2", "--lr", "0.001"),
    *("--kv-store", "dist_sync", "--model-prefix", "net", "--disp-batches", "1"),
)
VARIABLES = {"NCCL_SOCKET_IFNAME": "lo"}


class TwoGpus(unittest.TestCase):
    """Two ranks, each with a GPU of its own, as on two machines."""

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def weights(self, *options: str, count: int) -> Weights:
        place = self.directory / f"{count}{'-'.join(options)}"
        place.mkdir()
        size = str(64 // count)
        ranks = run(
            *OPTIONS, "--batch-size", size, *options, directory=place, count=count, program=PROGRAM, variables=VARIABLES
        )
        assert len({rank.digests[-1] for rank in ranks}) == 1
        return load(place / "net-0002.npz").state.weights

    def test_two_learn_what_one_learns(self) -> None:
        one = self.weights(count=1)
        for options, tolerance in (
            ((), 1e-4),
            (("--gc-type", "fp16"), 1e-3),
            (("--gc-type", "bf16"), 5e-3),
            (("--dtype", "float16"), 1e-2),
        ):
            with self.subTest(str(options)):
                found = self.weights(*options, count=2)
                both = (np.concatenate([value.ravel() for value in each.values()]) for each in (found, one))
                mine, other = both
                assert np.linalg.norm(mine - other) / np.linalg.norm(other) < tolerance

    def test_a_killed_rank_ends_the_other_with_one_line(self) -> None:
        options = (*OPTIONS, "--num-epochs", "1000")
        with running(*options, directory=self.directory, count=2, program=PROGRAM, variables=VARIABLES) as ranks:
            ranks[0].wait_for_log("Batch [2]")
            ranks[1].process.kill()
            assert ranks[0].wait() != 0
            assert "Traceback" not in ranks[0].log.read_text()


PROGRAM = (
    "-c",
    "import os; os.environ['CUDA_VISIBLE_DEVICES'] = os.environ['RANK']; "
    "from trainer.main import main_and_leave; main_and_leave()",
)
"""Each rank sees one GPU."""
