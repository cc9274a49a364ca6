"""Run ``python3 .../launcher/durable/__main__.py serve``, the service on the master.

``attempt JOB`` starts another attempt of a job; ``unit REQUEST`` is the program of a job's unit.
"""

import logging
import sys
from pathlib import Path

if not __package__:
    # Python puts this directory first on the path, but its modules are not top-level modules.
    sys.path[0:1] = [str(Path(__file__).resolve().parents[2])]

from launcher.detached import unit
from launcher.durable.attempt import DurableAttempt, start_attempt
from launcher.durable.service import serve
from launcher.errors import LaunchError


def main(args: list[str]) -> int:
    """Run one command; return the exit code."""
    try:
        if args[0] == "unit":
            return unit.main(Path(args[1]), hooks=DurableAttempt)
        if args[0] == "attempt":
            return start_attempt(args[1])
        serve()
    except LaunchError as error:
        print(f"launch: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    logging.getLogger("botocore").setLevel(logging.WARNING)
    sys.exit(main(sys.argv[1:]))
