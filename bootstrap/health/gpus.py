"""Count this node's GPUs on the machine itself, rather than from a list of instance types."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bootstrap.errors import CommandError

log = logging.getLogger(__name__)

DRIVER_LIST: Final = "proc/driver/nvidia/gpus"
"""Directory with one entry per GPU, present once the driver is loaded."""
EAGER_COUNT_S: Final = 5.0
"""Seconds between counts while the number is wrong."""
STEADY_COUNT_S: Final = 60.0
"""Seconds between counts while the number is right; nvidia-smi takes up to a second."""


class GpuCounter:
    """Counts the GPUs repeatedly: a driver may load after the agent, and a GPU can fall off its bus."""

    def __init__(
        self,
        root: Path,
        *,
        expected: int | None,
        nvidia_smi: Callable[[], str | None],
        monotonic: Callable[[], float],
    ) -> None:
        self._root = root
        self._expected = expected
        self._nvidia_smi = nvidia_smi
        self._monotonic = monotonic
        self._count: int | None = None
        self._next_ask = 0.0
        self._last_error: str | None = None

    def count_or_zero(self) -> int:
        """Return the number of GPUs; 0 while unknown."""
        return self.count_or_none() or 0

    def count_or_none(self) -> int | None:
        """Return the number of GPUs, counting again if the last count is old; None while unknown."""
        if self._monotonic() >= self._next_ask:
            self._count = self._ask()
            wrong = not self._count if self._expected is None else self._count != self._expected
            self._next_ask = self._monotonic() + (EAGER_COUNT_S if wrong else STEADY_COUNT_S)
        return self._count

    def _ask(self) -> int | None:
        """Run nvidia-smi, which also loads the driver; if it is not installed, use the kernel's count.

        Never use the kernel's count if nvidia-smi is installed: the kernel still lists a GPU that no longer answers.
        """
        try:
            listing = self._nvidia_smi()
        except CommandError as error:
            if str(error) != self._last_error:
                log.warning("%s", error)
            self._last_error = str(error)
            return self._count
        return _listed_by_driver(self._root / DRIVER_LIST) if listing is None else count_listed(listing)


def count_listed(listing: str) -> int:
    """Count the GPUs in the output of ``nvidia-smi -L``; MIG partitions are indented below their GPU."""
    return sum(line.startswith("GPU ") for line in listing.splitlines())


def _listed_by_driver(directory: Path) -> int:
    return sum(1 for _ in directory.iterdir()) if directory.is_dir() else 0
