"""Check when an agent requests the replacement of a ready node, and when it waits."""

import errno
import os

import pytest
from botocore.exceptions import ClientError

from bootstrap.files.paths import under_root
from bootstrap.health.checks import FAILURES_BEFORE_REPLACEMENT
from tests.bootstrap.booted_cluster import all_ready
from tests.bootstrap.health.simulated_gpus import Gpus, ready_master, run_minutes
from tests.bootstrap.simulated_cluster import SimulatedCluster


def test_node_with_a_lost_gpu_requests_replacement_once(
    cluster: SimulatedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    gpus = Gpus(4)
    master = ready_master(cluster, gpus)
    run_minutes(cluster, master, 3)
    assert cluster.marked_unhealthy == []
    gpus.count = 3
    run_minutes(cluster, master, FAILURES_BEFORE_REPLACEMENT - 1)
    assert cluster.marked_unhealthy == []
    run_minutes(cluster, master, 10)
    assert cluster.marked_unhealthy == [master.instance_id]
    output = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert output == ["check failed: gpus 3/4", "asked digits-master to replace this node: gpus 3/4"]


def test_gpu_that_is_back_in_time_is_forgiven(cluster: SimulatedCluster) -> None:
    gpus = Gpus(4)
    master = ready_master(cluster, gpus)
    for _ in range(5):
        gpus.count = 3
        run_minutes(cluster, master, FAILURES_BEFORE_REPLACEMENT - 1)
        gpus.count = 4
        run_minutes(cluster, master, 2)
    assert cluster.marked_unhealthy == []


@pytest.mark.parametrize(("number", "replaced"), [(errno.EROFS, True), (errno.ENOSPC, False)])
def test_failing_scratch_disk_replaces_the_node_and_a_full_one_does_not(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch, number: int, replaced: bool
) -> None:
    master = ready_master(cluster, Gpus(4))
    under_root(master.root, "/var/tmp").mkdir(parents=True)

    def fail(_descriptor: int) -> None:
        raise OSError(number, "on purpose")

    monkeypatch.setattr(os, "fsync", fail)
    run_minutes(cluster, master, FAILURES_BEFORE_REPLACEMENT + 3)
    assert cluster.marked_unhealthy == ([master.instance_id] if replaced else [])


def test_failed_replacement_request_is_repeated(cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = Gpus(4)
    master = ready_master(cluster, gpus)
    gpus.count = 3

    def refuse(**_: object) -> None:
        raise ClientError({"Error": {"Code": "Throttling", "Message": "Rate exceeded"}}, "SetInstanceHealth")

    with monkeypatch.context() as patch:
        patch.setattr(cluster.clients.autoscaling, "set_instance_health", refuse)
        run_minutes(cluster, master, FAILURES_BEFORE_REPLACEMENT + 2)
    run_minutes(cluster, master, 2)
    assert cluster.marked_unhealthy == [master.instance_id]


def test_ready_node_does_not_check_its_peers_or_master(cluster: SimulatedCluster) -> None:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=1)
    asked: list[str] = []

    def answers(address: str) -> bool:
        asked.append(address)
        return True

    nodes = [cluster.boot_node(node_type, answers_ssh=answers) for node_type in ("master", "worker")]
    cluster.run(nodes, until=all_ready(nodes))
    assert asked == [nodes[0].address] * 2
    under_root(nodes[1].root, "/etc/hosts").write_text("127.0.0.1 localhost\n")
    run_minutes(cluster, nodes[1], FAILURES_BEFORE_REPLACEMENT + 2)
    assert len(asked) == 2
    assert cluster.marked_unhealthy == []
