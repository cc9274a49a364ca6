"""Test the messages about unreachable hosts."""

from pathlib import Path

import pytest

from launcher.errors import ErrorKind, NodeError
from launcher.job import connect
from launcher.transport.ssh import error_kind

DENIED = "ubuntu@deeplearning-worker1: Permission denied (publickey)."


@pytest.mark.parametrize("lacks_cluster_key", [True, False])
def test_error_on_a_worker_names_the_master_as_the_place_to_launch(
    monkeypatch: pytest.MonkeyPatch, lacks_cluster_key: bool
) -> None:
    monkeypatch.setattr(connect, "lacks_cluster_key", lambda: lacks_cluster_key)
    on_worker = NodeError("deeplearning-worker1", DENIED, kind=ErrorKind.LOGIN_DENIED)
    assert ("run launch there" in str(connect.with_advice(on_worker))) == lacks_cluster_key
    elsewhere = NodeError("elsewhere", "Permission denied (publickey).", kind=ErrorKind.LOGIN_DENIED)
    assert str(connect.with_advice(elsewhere)) == "elsewhere: Permission denied (publickey)."


def test_only_new_nodes_are_retried_after_a_denied_login() -> None:
    denied = "Permission denied (publickey)."
    for host, is_permanent in (("deeplearning-worker1", False), ("elsewhere", True)):
        assert connect.is_permanent(NodeError(host, denied, kind=error_kind(denied))) == is_permanent
    assert not connect.is_permanent(NodeError("elsewhere", "no answer within 30 s"))


def test_node_with_the_cluster_key_is_not_a_worker(tmp_path: Path) -> None:
    config, key = tmp_path / "node.json", tmp_path / "key"
    assert not connect.lacks_cluster_key(config, key)
    config.touch()
    assert connect.lacks_cluster_key(config, key)
    key.touch()
    assert not connect.lacks_cluster_key(config, key)
