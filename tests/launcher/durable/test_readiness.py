"""Test when a cluster is complete, or has its minimum, for durable jobs."""

import json
from pathlib import Path

from launcher.durable.readiness import has_minimum, reason_not_ready
from tests.bootstrap.identities import instance_id, public_key


def node_state(
    tmp_path: Path,
    *,
    mounts: tuple[str, ...],
    desired: int = 2,
    draining: int = 0,
    shared: str | None = None,
    setup: str = "",
) -> str | None:
    members = [
        {
            "node_index": index,
            "instance_id": instance_id(index),
            "address": f"10.0.0.{index}",
            "node_type": "master" if index == 1 else "worker",
            "host_key": public_key(index),
            "mount": mount,
            "draining": index == draining,
            "setup": setup if index == draining else "",
        }
        for index, mount in enumerate(mounts, 1)
    ]
    state, config = tmp_path / "state", tmp_path / "config"
    state.write_text(
        json.dumps({"instance_id": instance_id(1), "generation": 4, "desired_nodes": desired, "members": members})
    )
    config.write_text(json.dumps({"shared_storage": shared}))
    return reason_not_ready(state, config)


def test_minimum_requires_the_setting_and_the_shared_directory(tmp_path: Path) -> None:
    node_state(tmp_path, mounts=("mounted", "no-address"), desired=3)
    for settings, enough in (
        ({}, False),
        ({"min_nodes": 2}, True),
        ({"min_nodes": 3}, False),
        ({"min_nodes": 2, "shared_storage": "efs"}, False),
    ):
        (tmp_path / "config").write_text(json.dumps(settings))
        assert has_minimum(tmp_path / "state", tmp_path / "config") is enough
    assert not has_minimum(tmp_path / "none", tmp_path / "config")


def test_cluster_is_complete_with_all_nodes_and_mounts(tmp_path: Path) -> None:
    assert reason_not_ready(tmp_path / "none", tmp_path / "none") == "this node has not joined the cluster"
    assert node_state(tmp_path, mounts=("",)) == "1 of 2 nodes are up"
    assert node_state(tmp_path, mounts=("", "")) is None
    assert node_state(tmp_path, mounts=("", ""), desired=0) == "2 of 0 nodes are up"
    assert node_state(tmp_path, mounts=("", ""), draining=2) == "deeplearning-worker2 is leaving the cluster"
    failed = f"failed:{'0' * 12}"
    assert node_state(tmp_path, mounts=("", ""), draining=2, setup=failed) is None
    assert node_state(tmp_path, mounts=("", ""), desired=3, draining=2, setup=failed) == "1 of 2 nodes are up"
    lack = "the shared directory is not mounted on deeplearning-worker2"
    assert node_state(tmp_path, mounts=("mounted", "no-address"), shared="efs") == lack
    assert node_state(tmp_path, mounts=("mounted", "mounted"), shared="efs") is None
