"""Remove everything that was set up, unless a local AWS is running, whose nodes use these files.

python3 -m local.clean    (`make clean`; works with any Python, because it also removes the environment)
"""

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from local.cache import cache_dir, locked
from local.errors import LocalError
from local.run.local_aws import live_names
from local.run_dir import RUN_DIR_VARIABLE

REPOSITORY = Path(__file__).parents[1]
LOCK_TIMEOUT_S = 60.0


def clean(directories: Iterable[Path]) -> None:
    """Remove directories. Raises LocalError if a local AWS is running or starting."""
    if RUN_DIR_VARIABLE in os.environ:
        raise LocalError(f"make clean works outside of a local AWS only, this is inside {os.environ[RUN_DIR_VARIABLE]}")
    with locked("run", timeout_s=LOCK_TIMEOUT_S):  # No run can start while this lock is held.
        if names := live_names():
            raise LocalError(f"a local AWS is up, end it first (make end RUN=...): {', '.join(names)}")
        for directory in directories:
            if directory.exists():
                shutil.rmtree(directory)


def main() -> int:
    try:
        clean([REPOSITORY / "cdk.out", cache_dir()])
    except (LocalError, OSError) as error:  # TimeoutError is a subclass of OSError.
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
