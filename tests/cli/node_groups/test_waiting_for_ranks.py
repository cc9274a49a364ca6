"""Test that a pause waits as long as nodes may wait for their ranks, and longer."""

import itertools
from types import SimpleNamespace

import pytest

from bootstrap.aws.group_sizes import PAUSED
from bootstrap.cluster.termination_notice import DROP_TIMEOUT_S, SIGTERM_DELIVERY_S
from bootstrap.contract import MAX_GRACE_S, NODE_TYPES
from cli.node_groups import waiting
from cli.node_groups.groups import GroupState

STEP_S = 30
SHUTDOWN_S = 300
"""Time for a large type to shut down, in seconds."""


def test_pause_waits_until_ranks_have_saved_and_nodes_have_shut_down(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = itertools.count(step=STEP_S)
    gone_at = DROP_TIMEOUT_S + SIGTERM_DELIVERY_S + MAX_GRACE_S + SHUTDOWN_S

    def read_groups(*_: object) -> dict[str, GroupState]:
        instances = {"i-1": "Terminating:Wait"} if next(seconds) < gone_at else {}
        return {node_type: GroupState(name=node_type, size=PAUSED, instances=instances) for node_type in NODE_TYPES}

    monkeypatch.setattr(waiting, "read_groups", read_groups)
    clock = itertools.count(step=STEP_S)
    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None))
    clients = SimpleNamespace(autoscaling=None)
    waiting.wait_until_gone(clients, SimpleNamespace(name="demo"))  # type: ignore[arg-type]
    assert "waiting for 2 of its nodes to end (i-1 Terminating:Wait" in capsys.readouterr().err
