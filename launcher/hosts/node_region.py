"""Determine the region of this node's AWS services.

Nodes set no variable for it, and without a region botocore and the ``aws`` command line turn to us-east-1: another
partition's S3 in GovCloud and China, and one that a gateway endpoint of this region's VPC does not reach.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from bootstrap.contract import NODE_CONFIG

REGION_VARIABLES: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
"""Variables with which users choose a region; the first has precedence."""


def read_node_config() -> Mapping[str, Any]:
    """Return the node's configuration; empty on any other machine."""
    with suppress(OSError, ValueError):
        values = json.loads(Path(NODE_CONFIG).read_text())
        return values if isinstance(values, dict) else {}
    return {}


def node_region() -> str | None:
    """Return this node's region; None on other machines."""
    region = read_node_config().get("region")
    return region if isinstance(region, str) else None


def chosen_region() -> str | None:
    """Return the region of the user's variables; None if they set none."""
    return next((region for name in REGION_VARIABLES if (region := os.environ.get(name))), None)
