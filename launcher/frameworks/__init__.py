"""Plan the processes and environment of each framework, one module per framework; a job imports only its own.

Users choose it with ``--framework``.
"""

from launcher.frameworks.framework import Framework, JobTopology

__all__ = ["FRAMEWORKS", "LAUNCHED_BY_MPI", "Framework", "JobTopology", "load_framework"]

FRAMEWORKS = ("torch", "mxnet", "horovod", "mpi")
LAUNCHED_BY_MPI = "mpi"
"""Chosen with ``--launcher mpi`` rather than ``--framework``."""


def load_framework(name: str) -> Framework:
    """Import one of FRAMEWORKS."""
    if name == "torch":
        from launcher.frameworks.torch import FRAMEWORK
    elif name == "mxnet":
        from launcher.frameworks.mxnet import FRAMEWORK
    elif name == "horovod":
        from launcher.frameworks.horovod import FRAMEWORK
    elif name == "mpi":
        from launcher.frameworks.mpi import FRAMEWORK
    else:
        raise ValueError(f"no such framework: {name!r}")
    return FRAMEWORK
