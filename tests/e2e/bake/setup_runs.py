"""Name the setup of the baked cluster, and read its outcome."""

from typing import Any

SETUP_FILE = "node-setup.sh"
SETUP = "#!/bin/bash\nset -euo pipefail\necho ran on $(hostname) at $(date +%s%N) | tee -a /srv/installed\n"
"""Script that tells where and how often it has run."""


def has_run(node: dict[str, Any]) -> bool:
    """Return whether a node of ``dlcluster status --json`` runs and its setup has succeeded."""
    return _outcome(node) == "done" and not node["draining"]


def has_failed(node: dict[str, Any]) -> bool:
    """Return whether a node runs and its setup has failed."""
    return _outcome(node) == "failed"


def _outcome(node: dict[str, Any]) -> str:
    outcome: dict[str, str] = node["setup"] or {}
    return outcome.get("outcome", "") if node["state"] == "running" else ""
