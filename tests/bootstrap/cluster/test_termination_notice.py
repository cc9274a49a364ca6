"""Check that a node with a termination notice ends only after the others have dropped it from their lists."""

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from bootstrap import contract
from bootstrap.agent import FAST_PASS_INTERVAL_S
from bootstrap.cluster.records import NodeRecord
from bootstrap.cluster.termination_notice import DROP_TIMEOUT_S, MEMBERSHIP_PROPAGATION_S, TerminationNotice
from bootstrap.errors import MetadataError
from tests.bootstrap.booted_cluster import (
    all_ready,
    form_cluster,
    hook_is_kept_alive,
    hosts_file,
    launch_nodes,
    run_seconds,
)
from tests.bootstrap.simulated_cluster import SimulatedCluster
from tests.bootstrap.simulated_node import SimulatedNode

TERMINATING = TerminationNotice(is_terminating=True)
INTERRUPTION_PENDING = TerminationNotice(is_interruption_pending=True)
REBALANCE_RECOMMENDED = TerminationNotice(is_rebalance_recommended=True)
FEW_POLLS_S = 20
"""Seconds in which every node has read a new membership, and the master the groups."""
AFTER_DROP_TIMEOUT_S = int(DROP_TIMEOUT_S) + 1
"""Seconds after which no drain is still waiting."""


def record(cluster: SimulatedCluster, node: SimulatedNode) -> NodeRecord:
    role = "AROAMASTER" if node.instance_id in dict(cluster.instances("master")) else "AROAWORKER"
    record_id = contract.node_record_id(role, node.instance_id)
    return cluster.table.read_nodes([record_id])[record_id]


def listed(nodes: list[SimulatedNode], draining_node: SimulatedNode) -> list[bool]:
    """Return, for each node, whether its known_hosts lists the draining node."""
    return [draining_node.host_key in node.text(contract.KNOWN_HOSTS_FILE) for node in nodes]


def test_draining_node_leaves_the_lists_before_it_completes_the_hook(cluster: SimulatedCluster) -> None:
    nodes = form_cluster(cluster)
    master, draining_node, other = nodes
    by_index = cluster.by_index()
    draining_node.metadata.notice = TERMINATING
    assert draining_node.agent.run_pass() == FAST_PASS_INTERVAL_S
    assert record(cluster, draining_node).draining
    assert listed(nodes, draining_node) == [True, True, True]
    run_seconds(cluster, nodes, FEW_POLLS_S, until=lambda: draining_node.instance_id not in known_ids(cluster))
    assert cluster.by_index() == by_index
    run_seconds(cluster, nodes, int(MEMBERSHIP_PROPAGATION_S) - 1)
    assert listed(nodes, draining_node) == [False, False, False]
    assert cluster.completed_hooks == []
    assert hook_is_kept_alive(cluster, draining_node)
    run_seconds(cluster, nodes, 3)
    assert cluster.completed_hooks == [draining_node.instance_id]
    assert cluster.marked_unhealthy == []
    run_seconds(cluster, nodes, 10)
    assert cluster.completed_hooks == [draining_node.instance_id]
    for node in (master, other):
        assert node.text(contract.WORKERS_FILE) == "deeplearning-worker1\ndeeplearning-worker3\n"
        assert "DEEPLEARNING_WORKERS_COUNT=2\n" in node.text(contract.ENVIRONMENT_FILE)


def known_ids(cluster: SimulatedCluster) -> set[str]:
    return {member.instance_id for member in cluster.table.read_membership().active_members}


def test_replacement_takes_the_index_of_the_draining_node(cluster: SimulatedCluster) -> None:
    nodes = form_cluster(cluster)
    master, draining_node, other = nodes
    draining_node.metadata.notice = TERMINATING
    run_seconds(cluster, nodes, 40, until=lambda: bool(cluster.completed_hooks))
    cluster.terminate(draining_node.instance_id)
    alive = [master, cluster.boot_replacement("worker", of=nodes), other]
    cluster.run(alive, until=lambda: all(node.text(contract.HOSTS_FILE) == hosts_file(alive) for node in alive))
    assert cluster.by_index() == {number: node.instance_id for number, node in enumerate(alive, 1)}


def test_only_node_of_a_cluster_leaves_without_waiting(cluster: SimulatedCluster) -> None:
    [master] = form_cluster(cluster, workers=0)
    master.metadata.notice = TERMINATING
    master.agent.run_pass()
    assert cluster.completed_hooks == [master.instance_id]
    assert master.text(contract.WORKERS_FILE) == ""


def test_draining_node_waits_for_readers_of_older_lists(cluster: SimulatedCluster) -> None:
    nodes = launch_nodes(cluster)
    cluster.run(nodes[:2], until=lambda: len(cluster.by_index()) == 2)
    nodes[2].metadata.notice = TERMINATING
    run_seconds(cluster, nodes, int(MEMBERSHIP_PROPAGATION_S))
    assert cluster.completed_hooks == []
    run_seconds(cluster, nodes, 2)
    assert cluster.completed_hooks == [nodes[2].instance_id]
    assert nodes[2].instance_id not in cluster.by_index().values()


def test_node_draining_before_the_first_membership_does_not_wait(cluster: SimulatedCluster) -> None:
    worker = launch_nodes(cluster)[1]
    worker.metadata.notice = TERMINATING
    worker.agent.run_pass()
    assert cluster.completed_hooks == [worker.instance_id]


def test_node_that_drains_early_never_reports_ready(cluster: SimulatedCluster) -> None:
    nodes = launch_nodes(cluster)
    cluster.run(nodes[:2], until=lambda: len(cluster.by_index()) == 2)
    cluster.run([nodes[2], nodes[0]], until=lambda: len(cluster.by_index()) == 3)
    nodes[1].metadata.notice = INTERRUPTION_PENDING
    nodes[1].agent.run_pass()  # the lists still contain every node, even itself
    assert nodes[1].text(contract.WORKERS_FILE).count("\n") == 3
    run_seconds(cluster, nodes, FEW_POLLS_S)
    assert not [signal for signal in cluster.signals if nodes[1].instance_id in signal.unique_id]


def test_standby_node_does_not_report_ready(cluster: SimulatedCluster) -> None:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=1)
    answering: list[str] = []
    master = cluster.boot_node("master", settings={"min_nodes": 1})
    worker = cluster.boot_node("worker", settings={"min_nodes": 1}, answers_ssh=answering.__contains__)
    cluster.run([worker, master], until=lambda: len(cluster.by_index()) == 2)
    cluster.set_lifecycle_state(worker.instance_id, "Standby")
    run_seconds(cluster, [master, worker], FEW_POLLS_S)
    answering.append(master.address)
    run_seconds(cluster, [master, worker], 10)
    assert not worker.agent.is_signal_settled
    cluster.set_lifecycle_state(worker.instance_id, "InService")
    cluster.run([master, worker], until=all_ready([worker]))


def test_master_with_a_notice_removes_itself_as_master_at_once(cluster: SimulatedCluster) -> None:
    nodes = form_cluster(cluster)
    nodes[0].agent.run_pass()  # it has just read the groups, and would not read them again for a while
    nodes[0].metadata.notice = TERMINATING
    nodes[0].agent.run_pass()
    assert cluster.table.read_membership().master is None
    run_seconds(cluster, nodes, int(MEMBERSHIP_PROPAGATION_S) + 1)
    assert cluster.completed_hooks == [nodes[0].instance_id]
    assert listed(nodes, nodes[0]) == [False, False, False]


@pytest.mark.parametrize(
    "notice", [INTERRUPTION_PENDING, TerminationNotice(is_interruption_pending=True, is_rebalance_recommended=True)]
)
def test_interrupted_node_leaves_the_lists_without_requesting_replacement(
    cluster: SimulatedCluster, notice: TerminationNotice
) -> None:
    nodes = form_cluster(cluster)
    nodes[2].metadata.notice = notice
    run_seconds(cluster, nodes, AFTER_DROP_TIMEOUT_S)
    assert listed(nodes, nodes[2]) == [False, False, False]
    assert cluster.by_index()[3] == nodes[2].instance_id
    assert (cluster.completed_hooks, cluster.marked_unhealthy) == ([], [])


def test_node_at_risk_leaves_the_lists_and_requests_replacement_once(cluster: SimulatedCluster) -> None:
    nodes = form_cluster(cluster)
    nodes[2].metadata.notice = REBALANCE_RECOMMENDED
    run_seconds(cluster, nodes, AFTER_DROP_TIMEOUT_S)
    assert listed(nodes, nodes[2]) == [False, False, False]
    assert (cluster.completed_hooks, cluster.marked_unhealthy) == ([], [nodes[2].instance_id])
    nodes[2].metadata.notice = TerminationNotice(is_rebalance_recommended=True, is_terminating=True)
    run_seconds(cluster, nodes, int(MEMBERSHIP_PROPAGATION_S) + 1)
    assert (cluster.completed_hooks, cluster.marked_unhealthy) == ([nodes[2].instance_id], [nodes[2].instance_id])


def refused(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch, message: str, *, call: str = "complete_lifecycle_action"
) -> list[str]:
    """Return the nodes whose request to their group was refused."""
    asked: list[str] = []

    def refuse(**action: str) -> None:
        asked.append(action["InstanceId"])
        raise ClientError({"Error": {"Code": "ValidationError", "Message": message}}, call)

    monkeypatch.setattr(cluster.clients.autoscaling, call, refuse)
    return asked


def test_hook_is_completed_once_if_the_group_no_longer_waits(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = refused(cluster, monkeypatch, "No active Lifecycle Action found with instance ID i-1")
    [master] = form_cluster(cluster, workers=0)
    master.metadata.notice = TERMINATING
    assert run_seconds(cluster, [master], 5) == 5
    assert asked == [master.instance_id]


def test_heartbeat_is_not_repeated_without_an_active_hook(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, draining_node, _ = form_cluster(cluster)
    asked = refused(cluster, monkeypatch, "No active Lifecycle Action found", call="record_lifecycle_action_heartbeat")
    draining_node.metadata.notice = TERMINATING
    run_seconds(cluster, [draining_node], int(DROP_TIMEOUT_S) + 2)
    assert (asked, cluster.completed_hooks) == ([draining_node.instance_id], [])


def test_hook_is_completed_again_after_another_refusal(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    [master] = form_cluster(cluster, workers=0)
    master.metadata.notice = TERMINATING
    with monkeypatch.context() as patch:
        asked = refused(cluster, patch, "Rate exceeded")
        run_seconds(cluster, [master], 3)
        assert asked == [master.instance_id] * 3
    master.agent.run_pass()
    assert cluster.completed_hooks == [master.instance_id]


def test_draining_node_waits_at_most_the_drop_timeout(cluster: SimulatedCluster) -> None:
    _, draining_node, other = form_cluster(cluster)  # and the master is dead from now on
    draining_node.metadata.notice = TERMINATING
    run_seconds(cluster, [draining_node, other], int(DROP_TIMEOUT_S))
    assert cluster.completed_hooks == []
    assert hook_is_kept_alive(cluster, draining_node)
    run_seconds(cluster, [draining_node, other], 2)
    assert cluster.completed_hooks == [draining_node.instance_id]


def test_node_without_access_to_the_table_still_completes_the_hook(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = form_cluster(cluster)

    def unreachable(*_: object) -> None:
        raise EndpointConnectionError(endpoint_url="https://dynamodb")

    nodes[2].metadata.notice = TerminationNotice(is_terminating=True)
    monkeypatch.setattr(cluster.clients.dynamodb, "_make_api_call", unreachable)
    run_seconds(cluster, nodes, int(DROP_TIMEOUT_S) + 2)
    assert cluster.completed_hooks == [nodes[2].instance_id]


def test_restarted_agent_without_the_table_does_not_end_its_hook(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    draining_node = form_cluster(cluster)[1]

    def unreachable(*_: object) -> None:
        raise EndpointConnectionError(endpoint_url="https://dynamodb")

    restarted = cluster.boot_node("worker", 0)
    assert restarted.instance_id == draining_node.instance_id
    restarted.metadata.notice = TERMINATING
    monkeypatch.setattr(cluster.clients.dynamodb, "_make_api_call", unreachable)
    run_seconds(cluster, [restarted], int(DROP_TIMEOUT_S))
    assert cluster.completed_hooks == []
    assert hook_is_kept_alive(cluster, restarted)
    run_seconds(cluster, [restarted], 2)
    assert cluster.completed_hooks == [restarted.instance_id]


def test_metadata_outage_neither_adds_nor_cancels_a_notice(cluster: SimulatedCluster) -> None:
    nodes = form_cluster(cluster)
    _, draining_node, other = nodes
    outage = MetadataError("no answer")
    other.metadata.notice = outage
    draining_node.metadata.notice = TERMINATING
    draining_node.agent.run_pass()
    draining_node.metadata.notice = outage
    run_seconds(cluster, nodes, AFTER_DROP_TIMEOUT_S)
    assert record(cluster, draining_node).draining
    assert not record(cluster, other).draining
    assert listed(nodes, other) == [True, True, True]
    assert cluster.completed_hooks == [draining_node.instance_id]
