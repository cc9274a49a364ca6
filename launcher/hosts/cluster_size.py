"""Read this node's files: how many nodes its cluster declares, and how long a new node may take for its setup."""

import json
from pathlib import Path

from bootstrap.contract import NODE_CONFIG, NODE_STATE


def declared_nodes(state: Path = Path(NODE_STATE), config: Path = Path(NODE_CONFIG)) -> int | None:
    """Return how many nodes train in the complete cluster; None if this machine belongs to no cluster."""
    # Imported late: most command lines do not need it.
    from bootstrap.cluster.records import parse_state

    try:
        desired = parse_state(state.read_text(), networks=None).desired_nodes
        master_trains = json.loads(config.read_text()).get("master_trains", True)
    except (OSError, ValueError):
        return None
    return desired if master_trains else desired - 1


def setup_seconds() -> int:
    """Return the time that a new node has for the user's setup; 0 without a setup, or if this machine is not a node."""
    try:
        timeout_s: int | None = json.loads(Path(NODE_CONFIG).read_text()).get("setup_timeout_s")
    except (OSError, ValueError):
        return 0
    return timeout_s or 0
