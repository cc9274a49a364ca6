"""Test how a node's configuration counts the nodes that train."""

import json
from pathlib import Path

import pytest

from launcher.hosts.node_config import declared_nodes
from tests.bootstrap.identities import instance_id, public_key


@pytest.mark.parametrize(("trains", "declared"), [(True, 3), (False, 2)])
def test_master_that_does_not_train_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, trains: bool, declared: int
) -> None:
    state, config = tmp_path / "state", tmp_path / "config"
    monkeypatch.setattr("launcher.hosts.node_config.NODE_CONFIG_FILE", str(config))
    member = {
        "node_index": 1,
        "instance_id": instance_id(1),
        "address": "10.0.0.1",
        "node_type": "master",
        "host_key": public_key(1),
        "mount": "",
        "draining": False,
        "setup": "",
    }
    values = {"instance_id": instance_id(1), "generation": 4, "desired_nodes": 3, "members": [member]}
    state.write_text(json.dumps(values))
    assert declared_nodes(state) is None
    config.write_text(json.dumps({"master_trains": trains}))
    assert declared_nodes(state) == declared
    assert declared_nodes(tmp_path / "none") is None
