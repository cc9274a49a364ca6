"""Find the directory of the local AWS that this process runs in."""

import os
from pathlib import Path

RUN_DIR_VARIABLE = "LOCAL_AWS_DIR"
"""Variable with the run's directory; it is set inside a local AWS only."""


def current_run_dir() -> Path:
    """Return the run's directory. Raises KeyError outside of a local AWS."""
    return Path(os.environ[RUN_DIR_VARIABLE])
