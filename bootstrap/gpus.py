"""How many GPUs this node has: asked of the node, never of a list of types."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bootstrap.errors import CommandError

log = logging.getLogger(__name__)

DRIVER_LIST: Final = "proc/driver/nvidia/gpus"
"""One directory a GPU, there once the driver is loaded."""


class GpuCounter:
    """Counts until there is something to count: a driver may come after the agent."""

    def __init__(self, root: Path, *, nvidia_smi: Callable[[], str | None]) -> None:
        self._root = root
        self._nvidia_smi = nvidia_smi
        self._count = 0
        self._trouble: str | None = None

    def count(self) -> int:
        """GPUs of this node; GPUs do not come and go, so the first that are seen are all."""
        self._count = self._count or self._ask()
        return self._count

    def _ask(self) -> int:
        """Ask the driver, which also loads it; without an answer count what the kernel shows."""
        try:
            listing = self._nvidia_smi()
        except CommandError as error:
            if str(error) != self._trouble:
                log.warning("%s", error)
            self._trouble = str(error)
            listing = None
        if listing is None:
            return _listed_by_driver(self._root / DRIVER_LIST)
        return count_listed(listing)


def count_listed(listing: str) -> int:
    """GPUs in the output of ``nvidia-smi -L``; the parts of a divided GPU stand indented below it."""
    return sum(line.startswith("GPU ") for line in listing.splitlines())


def _listed_by_driver(directory: Path) -> int:
    return sum(1 for _ in directory.iterdir()) if directory.is_dir() else 0
