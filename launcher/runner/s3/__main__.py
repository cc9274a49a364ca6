"""Run the download: ``python3 launcher/runner/s3/__main__.py``. Only launcher.runner.sync.s3_fetch starts it.

It reads a request from its standard input, and writes lines of JSON: counts while it works (launcher.sync.progress),
and last the final counts or an error. It ends with the process that started it.
"""

import json
import os
import resource
import signal
import sys

if not __package__:
    sys.path.insert(0, os.path.abspath(f"{__file__}/../../../.."))

from launcher.errors import LaunchError
from launcher.paths import VENDOR
from launcher.runner.fast_imports import PR_SET_PDEATHSIG, prctl


def main() -> int:
    """Download what the request names; return the exit code."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # Each large file that is not yet whole stays open, for its lock.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if os.path.isdir(VENDOR):
        sys.path.insert(1, VENDOR)
    request = json.loads(sys.stdin.readline())
    try:
        from launcher.runner.s3.download import Download

        counts = Download(**request, report=_write).run()
    except ModuleNotFoundError as error:
        return _fail(f"the node's python3 lacks {error.name}, which fetching from S3 needs")
    except LaunchError as error:
        return _fail(str(error))
    except OSError as error:
        reason = error.strerror or str(error)
        return _fail(f"{error.filename}: {reason}" if error.filename else reason)
    _write({**counts, "done": True})
    return 0


def _fail(reason: str) -> int:
    _write({"error": reason})
    return 1


def _write(line: dict[str, object]) -> None:
    sys.stdout.write(f"{json.dumps(line)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
