"""Test which of a cluster's nodes count as able to train."""

import json
from pathlib import Path

import pytest

from launcher.hosts.cluster_size import declared_nodes
from tests.bootstrap.identities import instance_id, public_key


@pytest.mark.parametrize(("trains", "declared"), [(True, 3), (False, 2)])
def test_master_that_does_not_train_is_not_counted(tmp_path: Path, *, trains: bool, declared: int) -> None:
    state, config = tmp_path / "state", tmp_path / "config"
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
    config.write_text(json.dumps({"master_trains": trains}))
    assert declared_nodes(state, config) == declared
    assert declared_nodes(tmp_path / "none", config) is None
