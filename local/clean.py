"""Removes everything that was set up, unless a local AWS is up: its nodes run from there.

python3 -m local.clean    (`make clean`; any Python will do, as the environment goes as well)
"""

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from local.errors import LocalError
from local.run.cache import cache_dir, locked
from local.run.runs import INSIDE, live_names

REPOSITORY = Path(__file__).parents[1]
LOCK_TIMEOUT_S = 60.0


def clean(directories: Iterable[Path]) -> None:
    """Remove directories. Raises LocalError when a local AWS is up, also one that is only starting."""
    if INSIDE in os.environ:
        raise LocalError(f"make clean works outside of a local AWS only, this is inside {os.environ[INSIDE]}")
    with locked("run", timeout_s=LOCK_TIMEOUT_S):  # none begins meanwhile
        if names := live_names():
            raise LocalError(f"a local AWS is up, end it first (make end RUN=...): {', '.join(names)}")
        for directory in directories:
            if directory.exists():
                shutil.rmtree(directory)


def main() -> int:
    try:
        clean([REPOSITORY / "cdk.out", cache_dir()])
    except (LocalError, OSError) as error:  # a TimeoutError is an OSError
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
