"""Test that a node joins the cluster once its setup has succeeded; if it failed, the node is visible but idle."""

from bootstrap.cluster.poll_interval import RECONCILE_INTERVAL_S
from bootstrap.contract import WORKERS_FILE
from bootstrap.setup.progress import SetupProgress, write_progress
from tests.bootstrap.simulated_cluster import SimulatedCluster
from tests.bootstrap.simulated_node import SimulatedNode

HASH = "0123456789abcdef" * 4
SETTINGS = {"setup": "s3://assets/x.zip", "setup_sha256": HASH, "setup_timeout_s": 900}
DONE, FAILED = f"done:{HASH[:12]}", f"failed:{HASH[:12]}"


def succeed(node: SimulatedNode) -> None:
    write_progress(node.root, SetupProgress(state="done", sha256=HASH))


def fail(node: SimulatedNode, why: str = "E: no package foo") -> None:
    write_progress(node.root, SetupProgress(state="failed", sha256=HASH, failure=why))


def setups(cluster: SimulatedCluster) -> dict[int, str]:
    return {member.node_index: member.setup for member in cluster.table.read_membership().members}


def test_node_joins_once_its_setup_has_succeeded(cluster: SimulatedCluster) -> None:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=1)
    master, worker = (cluster.boot_node(node_type, settings=SETTINGS) for node_type in ("master", "worker"))
    succeed(master)
    write_progress(worker.root, SetupProgress(state="running", sha256=HASH))
    cluster.run([master, worker], until=lambda: setups(cluster) == {1: DONE})
    for _ in range(10):
        worker.agent.run_pass()
        master.agent.run_pass()
        cluster.clock.now += 2.0
    assert (setups(cluster), cluster.signals) == ({1: DONE}, [])
    succeed(worker)
    cluster.run([master, worker], until=lambda: len(cluster.signals) == 2)
    assert setups(cluster) == {1: DONE, 2: DONE}


def test_setup_failure_fails_the_deploy_with_its_last_line(cluster: SimulatedCluster) -> None:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=0)
    node = cluster.boot_node("master", settings=SETTINGS)
    fail(node)
    node.agent.run_pass()
    assert cluster.signals == [("MasterGroup", "FAILURE", f"{node.instance_id} setup: E: no package foo")]


def test_failure_signal_at_the_deadline_names_a_running_setup(cluster: SimulatedCluster) -> None:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=0)
    node = cluster.boot_node("master", settings=SETTINGS)
    node.agent.run_pass()
    cluster.clock.now += 600.0
    node.agent.run_pass()
    assert cluster.signals == [("MasterGroup", "FAILURE", f"{node.instance_id} setup: running")]


def test_node_with_a_failed_setup_stays_a_member_without_jobs(cluster: SimulatedCluster) -> None:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=1)
    spared = {"fails_deploy": False, "min_nodes": 1}
    master, worker = (cluster.boot_node(node_type, settings=SETTINGS | spared) for node_type in ("master", "worker"))
    succeed(master)
    fail(worker)
    cluster.run([master, worker], until=lambda: setups(cluster) == {1: DONE, 2: FAILED})
    cluster.run([master, worker], until=lambda: worker.agent.is_signal_settled and master.agent.is_signal_settled)
    master.agent.run_pass()
    assert master.text(WORKERS_FILE) == "deeplearning-worker1\n"
    assert cluster.marked_unhealthy == []
    succeed(worker)
    cluster.run([master, worker], until=lambda: setups(cluster) == {1: DONE, 2: DONE})
    master.agent.run_pass()
    assert master.text(WORKERS_FILE) == "deeplearning-worker1\ndeeplearning-worker2\n"


def test_rebooted_member_keeps_its_index_during_setup(cluster: SimulatedCluster) -> None:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=0)
    node = cluster.boot_node("master", settings=SETTINGS)
    succeed(node)
    cluster.run([node], until=lambda: node.agent.is_signal_settled)
    write_progress(node.root, SetupProgress(state="running", sha256=HASH))
    again = cluster.boot_node("master", settings=SETTINGS)
    for _ in range(3):
        again.agent.run_pass()
        cluster.clock.now += RECONCILE_INTERVAL_S
    assert setups(cluster) == {1: DONE}
