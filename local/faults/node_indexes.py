"""Find the instance with a node index, as the nodes report it, so that faults can target "worker2"."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from bootstrap.contract import CLUSTER_TAG, MASTER_HOST, MASTER_INDEX, NODE_HOST_PREFIX, worker_host
from local.errors import LocalError, UsageError
from local.faults.clients import client
from local.faults.node_handle import all_nodes

NodeState = Mapping[str, Any]
_INSTANCE: Final = re.compile(r"i-[0-9a-f]+")
_ALIAS: Final = re.compile(rf"(?:{NODE_HOST_PREFIX}|worker)([1-9][0-9]*)")


def index_of_alias(name: str) -> int:
    """Return the node index that a host name, or its end, denotes. Raises UsageError."""
    if name in (MASTER_HOST, "master"):
        return 1
    if match := _ALIAS.fullmatch(name):
        return int(match[1])
    raise UsageError(f"a node is named {worker_host(2)}, worker2, master or i-..., got {name!r}")


def alias_of_index(node_index: int) -> str:
    """Return the short name of a node index."""
    return "master" if node_index == MASTER_INDEX else f"worker{node_index}"


def aliases(clusters: Mapping[str, Mapping[int, str]]) -> dict[str, str]:
    """Return the short name of each instance that has a node index."""
    return {
        instance_id: alias_of_index(node_index)
        for members in clusters.values()
        for node_index, instance_id in members.items()
    }


def newest(states: Iterable[NodeState]) -> NodeState | None:
    """Return the state with the latest membership, because a disconnected node still claims its old index."""
    return max(states, key=lambda state: int(state["generation"]), default=None)


def members_by_cluster(run_dir: Path) -> dict[str, dict[int, str]]:
    """Return each cluster's instances by node index, according to the node with the latest membership."""
    clusters = _clusters()
    states: dict[str, list[NodeState]] = {}
    for node in all_nodes(run_dir):
        state = node.state()
        if state is not None and node.instance_id in clusters:
            states.setdefault(clusters[node.instance_id], []).append(state)
    return {
        name: {int(member["node_index"]): str(member["instance_id"]) for member in best["members"]}
        for name, reports in states.items()
        if (best := newest(reports)) is not None
    }


def _clusters() -> dict[str, str]:
    """Return the cluster of each instance that belongs to one."""
    paginator = client("ec2").get_paginator("describe_instances")
    pages = paginator.paginate(Filters=[{"Name": "tag-key", "Values": [CLUSTER_TAG]}])
    return {
        instance["InstanceId"]: tag["Value"]
        for page in pages
        for reservation in page["Reservations"]
        for instance in reservation["Instances"]
        for tag in instance.get("Tags", [])
        if tag["Key"] == CLUSTER_TAG
    }


def resolve(name: str, clusters: Mapping[str, Mapping[int, str]]) -> str:
    """Return the instance that a name denotes. Raises LocalError."""
    if _INSTANCE.fullmatch(name):
        return name
    node_index = index_of_alias(name)
    matching = [members[node_index] for members in clusters.values() if node_index in members]
    if not matching:
        names = ", ".join(
            map(alias_of_index, sorted({node_index for members in clusters.values() for node_index in members}))
        )
        raise LocalError(f"no node {name}; nodes: {names or 'none'}")
    if len(matching) > 1:
        raise LocalError(f"several clusters have a {name}, give the instance id: {', '.join(sorted(matching))}")
    return matching[0]
