"""Check, from the files of this node's agent, whether the cluster has all its nodes.

A cluster that is shrinking or being paused is incomplete: a job started on the remaining nodes would soon be ended.
"""

import json
from pathlib import Path

from bootstrap.cluster.records import parse_state
from bootstrap.contract import MOUNTED, NODE_CONFIG_FILE, NODE_STATE_FILE, SETUP_FAILED, worker_host


def has_minimum(state: Path = Path(NODE_STATE_FILE), config: Path = Path(NODE_CONFIG_FILE)) -> bool:
    """Return True if the cluster may run below its declared size (min_workers) and has that many nodes, all usable."""
    try:
        members = [member for member in parse_state(state.read_text(), networks=None).members if not member.draining]
        settings = json.loads(config.read_text())
    except (OSError, ValueError):
        return False
    has_shared, min_nodes = settings.get("shared_storage") is not None, settings.get("min_nodes")
    is_mounted = all(member.mount == MOUNTED for member in members) or not has_shared
    return min_nodes is not None and len(members) >= min_nodes and is_mounted


def reason_not_ready(state: Path = Path(NODE_STATE_FILE), config: Path = Path(NODE_CONFIG_FILE)) -> str | None:
    """Return the reason why the cluster is not ready to run a job, in a few words; None if it is complete."""
    try:
        cluster = parse_state(state.read_text(), networks=None)
        has_shared = json.loads(config.read_text()).get("shared_storage") is not None
    except (OSError, ValueError):
        return "this node has not joined the cluster"
    # Do not wait for a node whose setup has failed: it never runs jobs.
    usable = [member for member in cluster.members if not member.setup.startswith(SETUP_FAILED)]
    if leaving := [worker_host(member.node_index) for member in usable if member.draining]:
        return f"{', '.join(leaving)} {'is' if len(leaving) == 1 else 'are'} leaving the cluster"
    desired = cluster.desired_nodes - (len(cluster.members) - len(usable))
    if len(usable) != desired:
        return f"{len(usable)} of {desired} nodes are up"
    unmounted = [worker_host(member.node_index) for member in usable if has_shared and member.mount != MOUNTED]
    return f"the shared directory is not mounted on {', '.join(unmounted)}" if unmounted else None
