"""Deploy one cluster with a setup for all tests of this directory, in the order of their files."""

from collections.abc import Iterator
from typing import Any

import pytest

from local.run.user import User
from tests.e2e.conftest import NODES
from tests.e2e.laptop import Laptop, new_laptop

SETUP_FILE = "node-setup.sh"
SETUP = "#!/bin/bash\nset -euo pipefail\necho ran on $(hostname) at $(date +%s%N) | tee -a /srv/installed\n"
"""Script that tells where and how often it has run."""


@pytest.fixture(scope="session")
def laptop(user: User, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    made = new_laptop(user, tmp_path_factory.mktemp("bake"))
    (made.checkout / SETUP_FILE).write_text(SETUP)
    made.set(worker_count=NODES - 1, setup=SETUP_FILE)
    made.run("cdk", "deploy")
    yield made
    made.run("cdk", "destroy", "--force")


def has_run(node: dict[str, Any]) -> bool:
    """Return whether a node of ``dlcluster status --json`` runs and its setup has succeeded."""
    return _outcome(node) == "done" and not node["draining"]


def has_failed(node: dict[str, Any]) -> bool:
    """Return whether a node runs and its setup has failed."""
    return _outcome(node) == "failed"


def _outcome(node: dict[str, Any]) -> str:
    outcome: dict[str, str] = node["setup"] or {}
    return outcome.get("outcome", "") if node["state"] == "running" else ""
