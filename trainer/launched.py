"""What the launcher has started this process as, by the variables of each engine."""

from collections.abc import Mapping
from typing import Final

from trainer.errors import UsageError

ROLE: Final = "DMLC_ROLE"
SERVING: Final = ("server", "scheduler")
MARKS: Final = {
    "torch": ("WORLD_SIZE",),
    "mxnet": (ROLE,),
    "horovod": ("HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE"),
}
"""Variables that the processes of an engine have and others have not."""
ALONE: Final = ("", "1")
"""Values of a number of ranks that say nothing about the engine."""


def serves(environment: Mapping[str, str]) -> bool:
    """Whether the process is one of MXNet's servers, or their scheduler, and trains nothing."""
    return environment.get(ROLE) in SERVING


def check_engine(engine: str, environment: Mapping[str, str]) -> None:
    """Refuse an engine whose ranks would not find each other: each would train alone."""
    launched = {name: mark for name, marks in MARKS.items() for mark in marks if environment.get(mark, "") not in ALONE}
    if launched and engine not in launched:
        [(other, mark), *_] = launched.items()
        raise UsageError(
            f"--engine {engine} needs `launch --engine {engine}`, got processes of the engine {other} "
            f"({mark} is {environment[mark]})"
        )
