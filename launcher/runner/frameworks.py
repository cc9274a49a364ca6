"""List the frameworks of the ``engines`` setting that this node has."""

from pathlib import Path

from bootstrap.contract import ENGINES_LIST, NODE_CONFIG


def installed_frameworks(config: Path = Path(NODE_CONFIG), listed: Path = Path(ENGINES_LIST)) -> list[str] | None:
    """Return the frameworks that are installed; None if this machine is not a node of a cluster."""
    if not config.exists():
        return None
    try:
        return listed.read_text().split()
    except OSError:
        return []
