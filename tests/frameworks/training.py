"""Run trainings on a cluster and read their results."""

import json
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.frameworks.mxnet_cluster import MxnetCluster

TRAINER = "/opt/deeplearning/trainer"
PYTHON = "/opt/deeplearning/mxnet/current/bin/python"
PYTORCH = "/opt/pytorch/bin/python"
MIN_ACCURACY = 0.98
TIMEOUT_S = 240
SHORT = "--num-epochs 6"
TWO_SERVERS = "--framework mxnet -n 2 -s 2"
ONE_WORKER = f"-n 1 {PYTHON}"
"""Options for one worker, which needs no servers and so no MXNet processes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """The output of a finished training."""

    output: str

    @property
    def accuracy(self) -> float:
        """Return the accuracy on the validation digits, which rank 0 prints once."""
        [printed] = re.findall(r"rank 0/\d Validation-accuracy=(\S+)", self.output)
        return float(printed)

    @property
    def digests(self) -> dict[int, dict[int, str]]:
        """Return the digests of the weights, by epoch and rank."""
        digests_by_rank: dict[int, dict[int, str]] = {}
        for rank, epoch, digest in re.findall(r"rank (\d)/\d Epoch\[(\d+)\] weights=(\S+)", self.output):
            digests_by_rank.setdefault(int(epoch), {})[int(rank)] = digest
        return digests_by_rank

    def assert_equal_weights(self, *, ranks: int, epochs: int) -> None:
        assert sorted(self.digests) == list(range(epochs)), self.output
        for of_ranks in self.digests.values():
            assert sorted(of_ranks) == list(range(ranks)), self.output
            assert len(set(of_ranks.values())) == 1, self.output


def train(cluster: "MxnetCluster", launch: str, options: str) -> Training:
    python = "" if launch == ONE_WORKER else "python"
    command = f"mkdir -p trainer && cd trainer; export OMP_NUM_THREADS=1; launch {launch} {python} {TRAINER} {options}"
    return Training(output=cluster.on_master(command))


def wait_for(cluster: "MxnetCluster", job: str, pattern: str) -> str:
    until = time.monotonic() + TIMEOUT_S
    while not re.search(pattern, log := cluster.on_master(f"launch logs {job}")):
        assert time.monotonic() < until, log
        time.sleep(0.5)
    return log


def wait_for_end(cluster: "MxnetCluster", job: str) -> None:
    until = time.monotonic() + TIMEOUT_S
    while (status := json.loads(cluster.on_master(f"launch status --json {job}")))["state"] == "RUNNING":
        assert time.monotonic() < until, status
        time.sleep(0.5)
    assert status["state"] == "SUCCEEDED", status
