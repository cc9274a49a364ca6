"""Remember the nodes of the clusters that dlcluster has read, because completion must not call AWS.

The file only helps to complete words: if it cannot be written or read, everything else still works.
"""

import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

FILE: Final = ".cache/dlcluster/clusters.json"
"""The file's path in the home directory."""
MAX_CLUSTERS: Final = 20
"""Largest number of clusters to remember."""
NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,62}", re.ASCII)
MAX_NODES: Final = 10_000


class SeenCluster(NamedTuple):
    """A cluster as dlcluster last saw it."""

    name: str
    region: str
    nodes: tuple[int, ...]
    """Node indexes."""
    profile: str = ""
    """AWS profile, in place of the account, which only AWS could tell; empty without one."""


def read_seen() -> list[SeenCluster]:
    """Return the remembered clusters of this profile, latest last; none if the file cannot be used."""
    return [seen for seen in _read_all() if seen.profile == _profile()]


def _profile() -> str:
    return os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE") or ""


def _read_all() -> list[SeenCluster]:
    try:
        rows = json.loads((Path.home() / FILE).read_text())
        return [_seen(row) for row in rows]
    except (OSError, RuntimeError, ValueError, TypeError, RecursionError):
        return []


def remember(seen: SeenCluster) -> None:
    """Remember a cluster as the latest one."""
    before, seen = _read_all(), seen._replace(profile=_profile())
    after = [*(other for other in before if _key(other) != _key(seen)), seen][-MAX_CLUSTERS:]
    if after != before:
        _write(after)


def forget(name: str | None, region: str) -> None:
    """Forget a cluster that is gone, or all clusters of a region."""
    before = _read_all()
    gone = {_key(seen) for seen in read_seen() if seen.region == region and name in (None, seen.name)}
    after = [seen for seen in before if _key(seen) not in gone]
    if after != before:
        _write(after)


def _key(seen: SeenCluster) -> tuple[str, str, str]:
    return seen.name, seen.region, seen.profile


def _seen(row: Any) -> SeenCluster:
    """Return a row of the file. Raises ValueError or TypeError."""
    name, region, nodes, profile = (*row, "")[:4]  # earlier versions wrote no profile
    valid = NAME.fullmatch(name) and isinstance(region, str) and isinstance(profile, str) and len(nodes) <= MAX_NODES
    if not valid or not all(type(index) is int and index > 0 for index in nodes):
        raise ValueError(row)
    return SeenCluster(name=name, region=region, nodes=tuple(nodes), profile=profile)


def _write(clusters: Sequence[SeenCluster]) -> None:
    with suppress(OSError, RuntimeError):  # RuntimeError: no home directory
        path = Path.home() / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}")
        partial.write_text(json.dumps(clusters))
        partial.replace(path)
