"""What each engine's processes find in their environment, one engine a file."""

from launcher.frameworks import horovod, mpi, mxnet, torch
from launcher.frameworks.framework import Engine, Site

__all__ = ["ENGINES", "LAUNCHED_BY_MPI", "Engine", "Site"]

ENGINES: dict[str, Engine] = {
    "torch": torch.ENGINE,
    "mxnet": mxnet.ENGINE,
    "horovod": horovod.ENGINE,
    "mpi": mpi.ENGINE,
}
LAUNCHED_BY_MPI = "mpi"
"""Not asked for as an engine, but by ``--launcher mpi``."""
