"""Plan each framework's processes and their environment, one framework a file."""

from launcher.frameworks import horovod, mpi, mxnet, torch
from launcher.frameworks.framework import Framework, JobTopology

__all__ = ["FRAMEWORKS", "LAUNCHED_BY_MPI", "Framework", "JobTopology"]

FRAMEWORKS: dict[str, Framework] = {
    "torch": torch.FRAMEWORK,
    "mxnet": mxnet.FRAMEWORK,
    "horovod": horovod.FRAMEWORK,
    "mpi": mpi.FRAMEWORK,
}
LAUNCHED_BY_MPI = "mpi"
"""Chosen by ``--launcher mpi``, not by ``--engine``."""
