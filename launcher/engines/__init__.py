"""Plan the processes and environment of each engine, one module per engine; a job imports only its own."""

from launcher.engines.engine import Engine, JobTopology

__all__ = ["ENGINES", "LAUNCHED_BY_MPI", "Engine", "JobTopology", "load_engine"]

ENGINES = ("torch", "mxnet", "horovod", "mpi")
LAUNCHED_BY_MPI = "mpi"
"""Chosen with ``--launcher mpi`` rather than ``--engine``."""


def load_engine(name: str) -> Engine:
    """Import one of ENGINES."""
    if name == "torch":
        from launcher.engines.torch import ENGINE
    elif name == "mxnet":
        from launcher.engines.mxnet import ENGINE
    elif name == "horovod":
        from launcher.engines.horovod import ENGINE
    elif name == "mpi":
        from launcher.engines.mpi import ENGINE
    else:
        raise ValueError(f"no such engine: {name!r}")
    return ENGINE
