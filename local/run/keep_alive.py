"""Keep a local AWS running for interactive use; runs inside its sandbox.

python -m local.run.keep_alive              until standard input ends
python -m local.run.keep_alive --forever    until the local AWS is ended from outside

Prints the name of the run once it can be entered.
"""

import json
import signal
import sys
from pathlib import Path

from local.run.local_aws import announce
from local.run.startup import REPOSITORY, run_variables
from local.run.user import USER_SETTINGS, temporary_user
from local.run_dir import current_run_dir


def write_settings(home: Path) -> None:
    """Write this user's default CDK context to ~/.cdk.json."""
    (home / ".cdk.json").write_text(json.dumps({"context": USER_SETTINGS}, indent=2) + "\n")


def main() -> None:
    run_dir = current_run_dir()
    write_settings(Path.home())
    with temporary_user() as user:
        agent = {"SSH_AUTH_SOCK": user.environment["SSH_AUTH_SOCK"]}
        announce(run_dir, checkout=REPOSITORY, variables=run_variables(run_dir) | agent)
        sys.stdout.write(f"{run_dir.name}\n")
        sys.stdout.flush()
        if "--forever" in sys.argv[1:]:
            signal.pause()
        else:
            sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
