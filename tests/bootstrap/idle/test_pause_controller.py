"""Test the agents of a cluster that is idle, used again, or about to end, with moto and the test's own clock."""

import json
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from bootstrap.contract import CAPACITY_BLOCK_PAUSES_TAG, EXPIRES_TAG, IDLE_STOP_TAG, PAUSE_ID, PAUSE_NOTICES_FILE
from bootstrap.idle.pause_record import PauseRecord, parse_pause
from tests.bootstrap.idle.node_files import write_counters
from tests.bootstrap.simulated_cluster import START, SimulatedCluster
from tests.bootstrap.simulated_node import CLUSTER, SimulatedNode


def tag(cluster: SimulatedCluster, key: str, value: str) -> None:
    """Change a tag of the master's group, like a deploy."""
    cluster.clients.autoscaling.create_or_update_tags(
        Tags=[
            {
                "ResourceId": f"{CLUSTER}-master",
                "ResourceType": "auto-scaling-group",
                "Key": key,
                "Value": value,
                "PropagateAtLaunch": False,
            }
        ]
    )


def run(cluster: SimulatedCluster, nodes: list[SimulatedNode], *, seconds: float) -> None:
    end = cluster.clock.now + seconds
    while cluster.clock.now < end:
        for node in nodes:
            node.agent.run_pass()
        cluster.clock.now += 15.0


def sizes(cluster: SimulatedCluster) -> dict[str, tuple[int, int, int]]:
    groups = cluster.clients.autoscaling.describe_auto_scaling_groups()["AutoScalingGroups"]
    return {g["AutoScalingGroupName"]: (g["MinSize"], g["DesiredCapacity"], g["MaxSize"]) for g in groups}


def walls(node: SimulatedNode) -> list[str]:
    return [call.removeprefix("wall ") for call in node.system.calls if call.startswith("wall ")]


def record(cluster: SimulatedCluster) -> PauseRecord:
    item = cluster.table.read_record(PAUSE_ID, consistent=True)
    assert item is not None
    return parse_pause(item)


@pytest.fixture
def nodes(cluster: SimulatedCluster) -> list[SimulatedNode]:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=1)
    found = [cluster.boot_node("master"), cluster.boot_node("worker")]
    for node in found:
        write_counters(node.root)
    return found


def test_idle_cluster_is_paused_after_a_notice(
    cluster: SimulatedCluster, nodes: list[SimulatedNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = nodes[1]
    requests: list[dict[str, Any]] = []
    monkeypatch.setattr(
        cluster.clients.autoscaling, "update_auto_scaling_group", lambda **request: requests.append(request)
    )
    tag(cluster, IDLE_STOP_TAG, "1200")
    run(cluster, nodes, seconds=1000.0)
    assert [len(walls(node)) for node in nodes] == [1, 1]
    assert "is idle and pauses at 00:3" in walls(worker)[0]
    write_counters(worker.root, network=10**9)
    run(cluster, nodes, seconds=300.0)
    assert [walls(node)[1:] for node in nodes] == [["this cluster is in use again and does not pause"]] * 2
    assert not requests
    run(cluster, nodes, seconds=800.0)
    assert [len(walls(node)) for node in nodes] == [3, 3]
    assert not requests
    run(cluster, nodes, seconds=240.0)
    assert requests[:2] == [
        {"AutoScalingGroupName": f"{CLUSTER}-{kind}", "MinSize": 0, "MaxSize": 0, "DesiredCapacity": 0}
        for kind in ("worker", "master")
    ]


def test_silent_node_counts_as_busy_then_unhealthy(cluster: SimulatedCluster, nodes: list[SimulatedNode]) -> None:
    master, worker = nodes
    tag(cluster, IDLE_STOP_TAG, "600")
    run(cluster, nodes, seconds=200.0)
    run(cluster, [master], seconds=720.0)
    assert record(cluster).pauses_at is None
    assert not record(cluster).silent
    run(cluster, [master], seconds=240.0)
    assert record(cluster).silent == (worker.instance_id,)
    assert record(cluster).pauses_at is not None


def test_activity_reports_are_rare_and_leave_the_membership_unchanged(
    cluster: SimulatedCluster, nodes: list[SimulatedNode], calls: Counter[str]
) -> None:
    run(cluster, nodes, seconds=60.0)
    calls.clear()
    run(cluster, nodes, seconds=1200.0)
    assert calls["PutItem"] == 0
    tag(cluster, IDLE_STOP_TAG, "3600")
    wanted = cluster.clock.now
    run(cluster, nodes, seconds=30.0)
    assert not record(cluster).silent
    generation = cluster.table.read_generation()
    calls.clear()
    run(cluster, nodes, seconds=1200.0)
    assert cluster.table.read_generation() == generation
    # Each node reports every two minutes; the record is written when the cluster becomes idle.
    assert calls["PutItem"] <= 2 * 1200 / 120 + 2
    assert not record(cluster).silent
    # What happened before the setting is unknown.
    idle_since = record(cluster).idle_since
    assert idle_since is not None
    assert idle_since >= START + timedelta(seconds=wanted)


def test_expiry_is_announced_once_and_extensions_reach_nodes(
    cluster: SimulatedCluster, nodes: list[SimulatedNode]
) -> None:
    tag(cluster, EXPIRES_TAG, "2026-12-01T00:40:00Z")
    run(cluster, nodes, seconds=480.0)
    assert [walls(node) for node in nodes] == [[], []]
    run(cluster, nodes, seconds=180.0)
    assert [[text[:40] for text in walls(node)] for node in nodes] == [["this cluster pauses at 00:40 UTC (expire"]] * 2
    tag(cluster, EXPIRES_TAG, "2026-12-01T08:40:00Z")
    announced = json.loads(nodes[0].text(PAUSE_NOTICES_FILE))
    assert announced == {"expires": {"sentence": walls(nodes[0])[0], "is_coming": True}}
    run(cluster, nodes, seconds=90.0)
    assert [walls(node)[1:] for node in nodes] == [["this cluster's expiry has been postponed"]] * 2
    withdrawn = {"expires": {"sentence": "this cluster's expiry has been postponed", "is_coming": False}}
    assert [json.loads(node.text(PAUSE_NOTICES_FILE)) for node in nodes] == [withdrawn] * 2


def test_end_of_a_capacity_block_is_announced_everywhere(cluster: SimulatedCluster, nodes: list[SimulatedNode]) -> None:
    tag(cluster, CAPACITY_BLOCK_PAUSES_TAG, "2026-12-01T00:40:00Z")
    run(cluster, nodes, seconds=660.0)
    word = "this cluster pauses at 00:40 UTC, before its Capacity Block ends"
    assert [[text[: len(word)] for text in walls(node)] for node in nodes] == [[word]] * 2


def test_forged_pause_record_is_ignored_and_replaced(cluster: SimulatedCluster, nodes: list[SimulatedNode]) -> None:
    tag(cluster, IDLE_STOP_TAG, "3600")
    cluster.table.write_record(PAUSE_ID, {"pause": {"S": '{"pauses_at": "now; rm -rf"}'}, "version": {"N": "2"}})
    run(cluster, nodes, seconds=150.0)
    assert record(cluster).idle_stop_s == 3600
    assert [walls(node) for node in nodes] == [[], []]
