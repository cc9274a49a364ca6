"""What a node has of the cluster's engines."""

from pathlib import Path

from bootstrap.contract import ENGINES_LIST, NODE_CONFIG


def installed_frameworks(config: Path = Path(NODE_CONFIG), listed: Path = Path(ENGINES_LIST)) -> list[str] | None:
    """Those of the ``engines`` setting that are there; None where this is no node of a cluster."""
    if not config.exists():
        return None
    try:
        return listed.read_text().split()
    except OSError:
        return []
