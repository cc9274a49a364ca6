"""Test the agent on simulated clusters: joining, readiness, replacement, lost tables."""

import json
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path

import pytest

from bootstrap import agent as agent_module
from bootstrap import contract
from bootstrap.cluster.membership import Membership
from bootstrap.cluster.table import Table
from bootstrap.dependencies import AgentDependencies
from bootstrap.files import ssh
from bootstrap.files.paths import under_root
from tests.bootstrap.booted_cluster import all_ready, form_cluster, hosts_file, launch_nodes, run_seconds
from tests.bootstrap.identities import public_key
from tests.bootstrap.simulated_cluster import SimulatedCluster
from tests.bootstrap.simulated_node import CLUSTER, TABLE, SimulatedNode


def snapshot(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return inode, time of change and content of every file below the root."""
    return {
        str(path.relative_to(root)): (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def ready_nodes(cluster: SimulatedCluster) -> list[SimulatedNode]:
    """Form a cluster of a master and two workers; return its nodes, all of them ready."""
    return form_cluster(cluster)


def test_every_node_signals_its_group_once(cluster: SimulatedCluster, ready_nodes: list[SimulatedNode]) -> None:
    master, first, second = ready_nodes
    assert Counter(cluster.signals) == Counter(
        [
            ("MasterGroup", "SUCCESS", master.instance_id),
            ("WorkerGroup", "SUCCESS", first.instance_id),
            ("WorkerGroup", "SUCCESS", second.instance_id),
        ]
    )


def test_hosts_and_workers_files_name_all_nodes_in_index_order(ready_nodes: list[SimulatedNode]) -> None:
    for node in ready_nodes:
        assert node.text(contract.HOSTS_FILE) == hosts_file(ready_nodes)
        assert node.text(contract.WORKERS_FILE) == (
            "deeplearning-worker1\ndeeplearning-worker2\ndeeplearning-worker3\n"
        )


def test_known_hosts_has_the_host_key_of_every_node(ready_nodes: list[SimulatedNode]) -> None:
    master, first, second = ready_nodes
    for node in ready_nodes:
        assert node.text(contract.KNOWN_HOSTS_FILE) == (
            "# BEGIN deeplearning-cdk\n"
            f"deeplearning-master,deeplearning-worker1,{master.address} {master.host_key}\n"
            f"deeplearning-worker2,{first.address} {first.host_key}\n"
            f"deeplearning-worker3,{second.address} {second.host_key}\n"
            "# END deeplearning-cdk\n"
        )


def test_environment_is_the_same_in_the_file_the_script_and_systemd(ready_nodes: list[SimulatedNode]) -> None:
    for node in ready_nodes:
        variables = [
            "DEEPLEARNING_WORKERS_PATH=/opt/deeplearning/workers\n",
            "DEEPLEARNING_WORKERS_COUNT=3\n",
            "DEEPLEARNING_WORKER_GPU_COUNT=0\n",
            "DEEPLEARNING_BUCKET=bucket\n",
            f"DEEPLEARNING_INSTANCE_ID={node.instance_id}\n",
        ]
        block = ["# BEGIN deeplearning-cdk\n", *variables, "# END deeplearning-cdk\n"]
        assert node.text(contract.ENVIRONMENT_FILE) == "".join(block)
        assert node.text(contract.ENVIRONMENT_SCRIPT) == "".join(f"export {line}" for line in variables)
        assert [f"{name}={value}\n" for name, value in node.system.environment.items()] == variables


def test_only_the_master_has_the_cluster_key_and_sshd_is_reloaded_once(ready_nodes: list[SimulatedNode]) -> None:
    for node in ready_nodes:
        is_master = node is ready_nodes[0]
        expected = ssh.SSHD_MASTER if is_master else ssh.SSHD_WORKER
        assert node.text(contract.SSHD_CONFIG_FILE) == expected
        assert node.text(contract.SSH_CLIENT_CONFIG_FILE) == (ssh.SSH_CLIENT_WITH_KEY if is_master else ssh.SSH_CLIENT)
        assert node.system.calls.count("reload-sshd") == 1


def test_node_state_has_the_members_that_the_agent_last_applied(ready_nodes: list[SimulatedNode]) -> None:
    for node_index, node in enumerate(ready_nodes, start=1):
        state = json.loads(node.text(contract.NODE_STATE_FILE))
        assert (state["instance_id"], state["node_index"]) == (node.instance_id, node_index)
        assert [member["address"] for member in state["members"]] == [node.address for node in ready_nodes]


def test_master_outside_training_is_not_in_the_workers_file(cluster: SimulatedCluster) -> None:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=2)
    head = {"master_trains": False, "worker_gpu_count": 8}
    nodes = [cluster.boot_node("master", settings=head), cluster.boot_node("worker"), cluster.boot_node("worker", 1)]
    cluster.run(nodes, until=all_ready(nodes))
    for node in nodes:
        # Names and keys of all nodes, because any of them may log in to the master.
        assert node.text(contract.HOSTS_FILE) == hosts_file(nodes)
        assert node.text(contract.WORKERS_FILE) == "deeplearning-worker2\ndeeplearning-worker3\n"
        assert node.system.environment["DEEPLEARNING_WORKERS_COUNT"] == "2"
    gpus = [node.system.environment["DEEPLEARNING_WORKER_GPU_COUNT"] for node in nodes]
    assert gpus == ["8", "0", "0"]
    # A deploy made it train, so the next master's record changes every list.
    restarted = cluster.boot_node("master", settings={"master_trains": True})
    cluster.run([restarted, *nodes[1:]], until=lambda: nodes[2].text(contract.WORKERS_FILE).count("\n") == 3)


def test_workers_that_start_first_wait_for_the_master(cluster: SimulatedCluster) -> None:
    master, *workers = launch_nodes(cluster)
    for _ in range(3):
        for worker in workers:
            worker.agent.run_pass()
    assert not cluster.signals
    cluster.run([*workers, master], until=all_ready([master, *workers]))
    assert len(cluster.signals) == 3


def test_no_node_signals_before_all_are_members(cluster: SimulatedCluster) -> None:
    master, first, second = launch_nodes(cluster)
    for _ in range(4):
        for node in (master, first):
            node.agent.run_pass()
        cluster.clock.now += 2.0
    assert not cluster.signals
    assert "deeplearning-worker2" in master.text(contract.HOSTS_FILE)
    cluster.run([master, first, second], until=all_ready([master, first, second]))


@pytest.mark.parametrize(("min_nodes", "present", "ready"), [(2, 1, False), (2, 2, True), (1, 1, True), (3, 2, False)])
def test_node_is_ready_with_the_minimum_of_the_deploy(
    cluster: SimulatedCluster, min_nodes: int, present: int, ready: bool
) -> None:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=2)
    nodes = [cluster.boot_node(node_type, settings={"min_nodes": min_nodes}) for node_type in ("master", "worker")]
    for _ in range(4):
        for node in nodes[:present]:
            node.agent.run_pass()
        cluster.clock.now += 2.0
    assert [node.agent.is_signal_settled for node in nodes[:present]] == [ready] * present
    assert len(cluster.signals) == (present if ready else 0)
    assert nodes[0].text(contract.WORKERS_FILE).count("\n") == present


def test_large_cluster_forms(cluster: SimulatedCluster) -> None:
    nodes = form_cluster(cluster, workers=20)
    assert all(node.text(contract.HOSTS_FILE) == hosts_file(nodes) for node in nodes)
    assert len(cluster.signals) == 21


def test_quiet_passes_and_restarted_agents_change_no_file(cluster: SimulatedCluster) -> None:
    nodes = form_cluster(cluster)
    before = [snapshot(node.root) for node in nodes]
    for node in nodes:
        node.agent.run_pass()
    cluster.clock.now += 60.0
    for node in (cluster.boot_node("master"), cluster.boot_node("worker", 0), cluster.boot_node("worker", 1)):
        node.agent.run_pass()
        assert node.agent.is_signal_settled
        assert not node.system.calls
    assert [snapshot(node.root) for node in nodes] == before
    assert len(cluster.signals) == 3


def test_replaced_worker_is_known_to_all_without_disturbing_the_others(cluster: SimulatedCluster) -> None:
    nodes = form_cluster(cluster)
    master, lost, kept = nodes
    cluster.terminate(lost.instance_id)
    replacement = cluster.boot_replacement("worker", of=nodes)
    alive = [master, replacement, kept]
    cluster.run(alive, until=lambda: all(n.text(contract.HOSTS_FILE) == hosts_file(alive) for n in alive))
    assert lost.host_key not in master.text(contract.KNOWN_HOSTS_FILE)
    assert replacement.host_key in kept.text(contract.KNOWN_HOSTS_FILE)


def test_foreign_line_written_later_survives_and_our_lost_block_returns(cluster: SimulatedCluster) -> None:
    nodes = form_cluster(cluster, workers=0)
    hosts = under_root(nodes[0].root, contract.HOSTS_FILE)
    hosts.write_text("10.9.9.9 mine\n")
    cluster.clock.now += 60.0
    nodes[0].agent.run_pass()
    assert hosts.read_text() == hosts_file(nodes).replace("127.0.0.1 localhost", "10.9.9.9 mine")


def test_new_host_key_reaches_every_node(cluster: SimulatedCluster) -> None:
    nodes = form_cluster(cluster)
    under_root(nodes[2].root, contract.HOST_KEY_FILE).write_text(f"{public_key('new')} root@image\n")
    cluster.clock.now += 10.0
    run_seconds(cluster, nodes, 30)
    assert [f"{public_key('new')}\n" in node.text(contract.KNOWN_HOSTS_FILE) for node in nodes] == [True] * 3


def test_stale_read_of_the_generation_changes_no_file(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = form_cluster(cluster)
    older = cluster.table.read_generation() - 1
    monkeypatch.setattr(Table, "read_generation", lambda _: older)
    nodes[1].agent.run_pass()
    assert nodes[1].text(contract.HOSTS_FILE) == hosts_file(nodes)


@pytest.mark.parametrize("restarted", [(), (0,), (0, 1, 2)], ids=["nobody", "master", "everybody"])
def test_cluster_survives_the_loss_of_its_table_rows(cluster: SimulatedCluster, restarted: tuple[int, ...]) -> None:
    nodes = form_cluster(cluster)
    by_index = cluster.by_index()
    for item in cluster.clients.dynamodb.scan(TableName=TABLE)["Items"]:
        cluster.clients.dynamodb.delete_item(TableName=TABLE, Key={contract.TABLE_KEY: item[contract.TABLE_KEY]})
    again = [cluster.boot_node("master"), cluster.boot_node("worker", 0), cluster.boot_node("worker", 1)]
    for number in restarted:
        nodes[number] = again[number]
    cluster.run(nodes, until=lambda: len(cluster.by_index()) == 3 and all(shows(n, cluster) for n in nodes), passes=60)
    if not restarted:
        assert cluster.by_index() == by_index
    assert {*cluster.by_index().values()} == {*by_index.values()}


def shows(node: SimulatedNode, cluster: SimulatedCluster) -> bool:
    """Return True if the node has the table's current membership."""
    state = json.loads(node.text(contract.NODE_STATE_FILE))
    return bool(state["generation"] == cluster.table.read_generation())


def test_worker_reads_the_membership_only_when_its_generation_has_moved(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = form_cluster(cluster)
    reads: list[Table] = []
    real = Table.read_membership

    def read(table: Table) -> Membership:
        reads.append(table)
        return real(table)

    for _ in range(3):
        nodes[1].agent.run_pass()
    monkeypatch.setattr(Table, "read_membership", read)
    for _ in range(5):
        nodes[1].agent.run_pass()
    assert not reads
    stored = cluster.table.read_stored()
    now = stored.membership
    cluster.table.replace_membership(stored, replace(now, generation=now.generation + 1))
    reads.clear()
    for _ in range(5):
        nodes[1].agent.run_pass()
    assert len(reads) == 1


def test_delays_are_jittered(cluster: SimulatedCluster) -> None:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=0)
    node = cluster.boot_node("master", jitter=lambda: 1.5)
    assert node.agent.run_pass() == agent_module.PASS_INTERVAL_S * 1.5
    [jitter] = [field.default for field in fields(AgentDependencies) if field.name == "jitter"]
    assert callable(jitter)
    assert {round(jitter(), 1) for _ in range(500)} == {0.8, 0.9, 1.0, 1.1, 1.2}


def test_groups_of_other_clusters_are_left_alone(cluster: SimulatedCluster) -> None:
    nodes = launch_nodes(cluster, workers=0)
    cluster.clients.autoscaling.create_auto_scaling_group(
        AutoScalingGroupName="somebody-elses",
        LaunchTemplate={"LaunchTemplateName": "node"},
        MinSize=1,
        MaxSize=1,
        VPCZoneIdentifier=cluster.subnet,
        Tags=[{"Key": contract.CLUSTER_TAG, "Value": f"{CLUSTER}-2", "PropagateAtLaunch": True}],
    )
    cluster.run(nodes, until=all_ready(nodes))
    assert nodes[0].text(contract.WORKERS_FILE) == "deeplearning-worker1\n"
