"""Read this node's configuration: its region, its cluster's size, and the time that a new node's setup may take.

Nodes set no variable for the region, and without one botocore and the ``aws`` command line turn to us-east-1: another
partition's S3 in GovCloud and China, and one that a gateway endpoint of this region's VPC does not reach.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from bootstrap.contract import NODE_CONFIG_FILE, NODE_STATE_FILE

REGION_VARIABLES: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
"""Variables with which users choose a region; the first has precedence."""


def read_node_config() -> Mapping[str, Any]:
    """Return the node's configuration; empty on any other machine."""
    with suppress(OSError, ValueError):
        values = json.loads(Path(NODE_CONFIG_FILE).read_text())
        return values if isinstance(values, dict) else {}
    return {}


def declared_nodes(state: Path = Path(NODE_STATE_FILE)) -> int | None:
    """Return how many nodes train in the complete cluster; None if this machine belongs to no cluster."""
    # Imported late: most command lines do not need it.
    from bootstrap.cluster.records import parse_state

    config = read_node_config()
    if not config:
        return None
    try:
        desired = parse_state(state.read_text(), networks=None).desired_nodes
    except (OSError, ValueError):
        return None
    return desired if config.get("master_trains", True) else desired - 1


def setup_timeout_s() -> int:
    """Return the time that a new node has for the user's setup; 0 without a setup, or if this machine is not a node."""
    timeout_s: int | None = read_node_config().get("setup_timeout_s")
    return timeout_s or 0


def node_region() -> str | None:
    """Return this node's region; None on other machines."""
    region = read_node_config().get("region")
    return region if isinstance(region, str) else None


def chosen_region() -> str | None:
    """Return the region of the user's variables, which replaces the node's; None if they set none."""
    return next((region for name in REGION_VARIABLES if (region := os.environ.get(name))), None)
