"""How many GPUs this node has: asked of the node, never of a list of types."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bootstrap.errors import CommandError

log = logging.getLogger(__name__)

DRIVER_LIST: Final = "proc/driver/nvidia/gpus"
"""One directory a GPU, there once the driver is loaded."""

ASK_AGAIN_S: Final = 5.0
STEADY_S: Final = 60.0
"""nvidia-smi costs the node up to a second of work."""


class GpuCounter:
    """Asks again now and then: a driver may come after the agent, and a GPU can fall off its bus."""

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
        self._trouble: str | None = None

    def count(self) -> int:
        """GPUs that this node has now, as far as it was asked lately; 0 while nobody can say."""
        return self.known() or 0

    def known(self) -> int | None:
        """The same; None while nobody can say."""
        if self._monotonic() >= self._next_ask:
            self._count = self._ask()
            wrong = not self._count if self._expected is None else self._count != self._expected
            self._next_ask = self._monotonic() + (ASK_AGAIN_S if wrong else STEADY_S)
        return self._count

    def _ask(self) -> int | None:
        """Ask the driver, which also loads it; without nvidia-smi count what the kernel shows.

        Never both: the kernel goes on showing a GPU that does not answer any more.
        """
        try:
            listing = self._nvidia_smi()
        except CommandError as error:
            if str(error) != self._trouble:
                log.warning("%s", error)
            self._trouble = str(error)
            return self._count
        return _listed_by_driver(self._root / DRIVER_LIST) if listing is None else count_listed(listing)


def count_listed(listing: str) -> int:
    """GPUs in the output of ``nvidia-smi -L``; the parts of a divided GPU stand indented below it."""
    return sum(line.startswith("GPU ") for line in listing.splitlines())


def _listed_by_driver(directory: Path) -> int:
    return sum(1 for _ in directory.iterdir()) if directory.is_dir() else 0
