"""Act from a checkout of the project, whose cdk.json a user has filled in."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from local.run.user import USER_SETTINGS, User
from tests.e2e.checkouts import copy_checkout
from tests.e2e.conftest import NODES

COMMAND_S = 600


@dataclass(frozen=True, kw_only=True, slots=True)
class Laptop:
    """A user with a checkout."""

    user: User
    checkout: Path

    def start(self, *command: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            command,
            cwd=self.checkout,
            env=dict(self.user.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *command: str) -> str:
        """Return the output of a command, which must succeed."""
        process = self.start(*command)
        output, _ = process.communicate(timeout=COMMAND_S)
        assert process.returncode == 0, output
        return output


def new_laptop(user: User, directory: Path, settings: Mapping[str, object] | None = None) -> Laptop:
    """Copy the checkout, and write the user's settings into its cdk.json."""
    checkout = copy_checkout(directory)
    file = checkout / "cdk.json"
    values = json.loads(file.read_text())
    # There is no terminal on which the CDK could ask.
    values["requireApproval"] = "never"
    values["context"] |= {**USER_SETTINGS, "worker_count": NODES - 1, **(settings or {})}
    file.write_text(json.dumps(values))
    return Laptop(user=user, checkout=checkout)
