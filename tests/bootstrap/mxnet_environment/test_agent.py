"""Check that the agent waits for its node's environment, and reports its failure immediately."""

import socket

from bootstrap.contract import HOSTS_FILE
from bootstrap.mxnet_environment.progress import EnvironmentProgress, write_progress
from tests.bootstrap.simulated_cluster import SimulatedCluster

SETTINGS = {"mxnet_environment": "horovod"}


def test_node_is_ready_when_its_environment_is(cluster: SimulatedCluster) -> None:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=0)
    node = cluster.boot_node("master", settings=SETTINGS)
    for state in ("building", "storing"):
        write_progress(node.root, EnvironmentProgress(state=state))
        for _ in range(3):
            node.agent.run_pass()
        assert cluster.signals == []
    write_progress(node.root, EnvironmentProgress(state="ready"))
    node.agent.run_pass()
    assert cluster.signals == [("MasterGroup", "SUCCESS", node.instance_id)]


def test_hostname_resolves_to_the_reachable_address(cluster: SimulatedCluster) -> None:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=0)
    node = cluster.boot_node("master", settings=SETTINGS)
    node.agent.run_pass()
    assert f"{node.address} deeplearning-master deeplearning-worker1 {socket.gethostname()}\n" in node.text(HOSTS_FILE)


def test_failing_build_fails_the_deploy_at_once(cluster: SimulatedCluster) -> None:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=1)
    node = cluster.boot_node("master", settings=SETTINGS)
    write_progress(
        node.root,
        EnvironmentProgress(
            state="failed", failure="no C++ compiler", detail="Horovod needs c++ to compile, found none"
        ),
    )
    node.agent.run_pass()
    assert cluster.signals == [("MasterGroup", "FAILURE", f"{node.instance_id} mxnet: no C++ compiler")]


def test_deadline_signal_names_what_the_worker_waits_for(cluster: SimulatedCluster) -> None:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=1)
    master, worker = cluster.boot_node("master"), cluster.boot_node("worker", settings=SETTINGS)
    write_progress(worker.root, EnvironmentProgress(state="waiting-for-master"))
    cluster.run([master, worker], until=lambda: master.agent.is_signal_settled)
    cluster.clock.now += 600.0
    worker.agent.run_pass()
    assert cluster.signals[1:] == [("WorkerGroup", "FAILURE", f"{worker.instance_id} mxnet: waiting-for-master")]


def test_replaced_masters_failing_build_does_not_stop_the_cluster(cluster: SimulatedCluster) -> None:
    # A running cluster is better off with a master without MXNet than without a master.
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=1)
    node, worker = cluster.boot_node("master", settings=SETTINGS), cluster.boot_node("worker")
    write_progress(node.root, EnvironmentProgress(state="failed", failure="no pip", detail="no pip"))
    cluster.run([node, worker], until=lambda: len(cluster.by_index()) == 2 and node.agent.is_signal_settled)
    assert worker.agent.is_signal_settled
