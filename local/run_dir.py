"""Find the directory of the current local AWS, in which this process runs."""

import os
from pathlib import Path

RUN_DIR_VARIABLE = "LOCAL_AWS_DIR"
"""Variable with the run's directory; set only inside a local AWS."""


def current_run_dir() -> Path:
    """Return the run's directory. Raises KeyError outside of a local AWS."""
    return Path(os.environ[RUN_DIR_VARIABLE])
