"""Read PyTorch's libraries ahead, once a boot; say in one line what was read, or why nothing was."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bootstrap.atomic_file import write_file
from bootstrap.files.paths import run_file
from bootstrap.read_ahead.libraries import find_libraries, read_all

log = logging.getLogger(__name__)

MARKER: Final = "read-ahead"
"""File of /run that the first run of a boot makes."""
AGENT_STARTED: Final = "agent-started"
"""File of /run that the agent makes once its own code is loaded (bootstrap.phases)."""
AGENT_TIMEOUT_S: Final = 60.0
"""Seconds after which it reads without having seen the agent."""
POLL_S: Final = 0.5
DEADLINE_S: Final = 300.0
"""Time limit in seconds. The libraries are about 5 GB; a fresh volume delivers about 70 MB/s."""


def read_ahead(
    root: Path,
    *,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    deadline_s: float = DEADLINE_S,
) -> None:
    """Read the libraries unless a read has already started since boot. Failures are only logged."""
    marker = run_file(root, MARKER)
    try:
        if marker.exists():
            log.info("PyTorch's libraries were read ahead since the boot")
            return
        write_file(marker, "begun\n")
        _wait_for_agent(root, monotonic=monotonic, sleep=sleep)
        files = find_libraries(root)
        amount = read_all(files, deadline_s=deadline_s, monotonic=monotonic)
    except OSError as error:
        log.warning("cannot read PyTorch's libraries ahead: %s", error)
    else:
        log.info("read PyTorch's libraries ahead, %d files: %s", len(files), amount)


def _wait_for_agent(root: Path, *, monotonic: Callable[[], float], sleep: Callable[[float], None]) -> None:
    """Wait until the agent has loaded its own code, which comes from the same volume."""
    end = monotonic() + AGENT_TIMEOUT_S
    while not run_file(root, AGENT_STARTED).exists():
        if monotonic() > end:
            log.info("waited %.0f s for the agent's start", AGENT_TIMEOUT_S)
            return
        sleep(POLL_S)
