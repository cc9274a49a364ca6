"""Define the training methods that Figure 1 compares: their commands, and the traffic of a step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

TRAINER: Final = "/opt/deeplearning/trainer"
MXNET_PYTHON: Final = "/opt/deeplearning/mxnet/current/bin/python"
IN_TORCH: Final = f"{TRAINER} --network _wide:in_torch"
IN_GLUON: Final = f"{TRAINER} --network _wide:in_gluon"
"""benchmarks/figure1/_wide.py is in the working directory of every node."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingMethod:
    """A method of distributed training."""

    label: str
    baseline: str
    """Name of the entry of BASELINES with the same computation and no communication."""
    command: Callable[[int], str]
    """Function that returns the command for this number of workers, without the trainer's options."""
    models_sent: Callable[[int], float]
    """Function that returns how many copies of the model one step sends over the busiest link, in its busier
    direction."""


def _servers(count: Callable[[int], int]) -> Callable[[int], str]:
    return lambda workers: (
        f"launch -n {workers} -s {count(workers)} python {IN_GLUON} --framework mxnet --kv-store dist_sync"
    )


def _ring_share(workers: int) -> float:
    """Return the traffic of each node in models per step; a ring and evenly spread servers have the same.

    Patarasuk and Yuan (2009), "Bandwidth optimal all-reduce algorithms for clusters of workstations".
    """
    return 2 * (workers - 1) / workers


METHODS: Final = {
    "one_server": TrainingMethod(
        label="MXNet, one server",
        baseline="mxnet_alone",
        command=_servers(lambda _: 1),
        # The server is on the same node as one worker, whose model crosses no link.
        models_sent=lambda workers: workers - 1,
    ),
    "n_servers": TrainingMethod(
        label="MXNet, a server per worker",
        baseline="mxnet_alone",
        command=_servers(lambda workers: workers),
        models_sent=_ring_share,
    ),
    "two_n_servers": TrainingMethod(
        label="MXNet, two servers per worker",
        baseline="mxnet_alone",
        command=_servers(lambda workers: 2 * workers),
        models_sent=_ring_share,
    ),
    "horovod": TrainingMethod(
        label="MXNet with Horovod",
        baseline="mxnet_alone",
        command=lambda workers: f"launch -n {workers} --framework horovod python {IN_GLUON} --framework horovod",
        models_sent=_ring_share,
    ),
    "ours": TrainingMethod(
        label="PyTorch (the trainer's default)",
        baseline="torch_alone",
        command=lambda workers: f"launch -n {workers} python {IN_TORCH} --kv-store dist_sync",
        models_sent=_ring_share,
    ),
}
NO_BASELINE: Final = ""
"""Baseline of the baselines themselves."""
BASELINES: Final = {
    "torch_alone": TrainingMethod(
        label="PyTorch, nothing sent",
        baseline=NO_BASELINE,
        command=lambda workers: f"launch -n {workers} python {IN_TORCH} --kv-store local",
        models_sent=lambda _: 0,
    ),
    "mxnet_alone": TrainingMethod(
        label="MXNet, nothing sent",
        baseline=NO_BASELINE,
        # MXNet rejects several workers without servers, so start each as if it were the only one.
        command=lambda workers: f"launch -n {workers} env WORLD_SIZE=1 {MXNET_PYTHON} {IN_GLUON} --framework mxnet",
        models_sent=lambda _: 0,
    ),
}
"""Methods whose workers train independently, at the same time on the same nodes, without communication."""
