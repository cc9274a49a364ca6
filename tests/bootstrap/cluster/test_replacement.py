"""Check the files that every agent writes after a node is lost or the cluster is resized."""

import shutil
import stat

import pytest

from bootstrap import contract
from bootstrap.cluster.termination_notice import TerminationNotice
from bootstrap.files.paths import under_root
from tests.bootstrap.booted_cluster import all_ready, form_cluster, hosts_file
from tests.bootstrap.simulated_cluster import SimulatedCluster
from tests.bootstrap.simulated_node import CLUSTER, SimulatedNode


def authorized_keys(node: SimulatedNode) -> str:
    [file] = under_root(node.root, contract.AUTHORIZED_KEYS_DIR).iterdir()
    assert file.name == file.owner()
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    return file.read_text()


def key_of(master: SimulatedNode) -> str:
    """Return the authorized-keys line of this master."""
    public = master.text(f"{contract.CLUSTER_KEY_FILE}.pub").rsplit(" ", 1)[0]
    return f'from="{master.address}" {public} deeplearning-cdk\n'


def run_until_agreed(cluster: SimulatedCluster, nodes: list[SimulatedNode]) -> None:
    """Let time pass until every node's files name these nodes, in index order."""
    cluster.run(nodes, until=lambda: all(node.text(contract.HOSTS_FILE) == hosts_file(nodes) for node in nodes))


def test_only_the_master_holds_the_cluster_key(cluster: SimulatedCluster) -> None:
    nodes = form_cluster(cluster)
    assert [authorized_keys(node) for node in nodes] == [key_of(nodes[0])] * 3
    assert [under_root(node.root, contract.CLUSTER_KEY_DIR).exists() for node in nodes] == [True, False, False]


def test_all_nodes_trust_the_new_master_instead_of_the_old_one(cluster: SimulatedCluster) -> None:
    nodes = form_cluster(cluster)
    old, *workers = nodes
    cluster.terminate(old.instance_id)
    new = cluster.boot_replacement("master", of=nodes)
    alive = [*workers, new]
    cluster.run(alive, until=all_ready(alive))
    run_until_agreed(cluster, [new, *workers])
    assert key_of(new) != key_of(old)
    for node in alive:
        assert authorized_keys(node) == key_of(new)
        known = node.text(contract.KNOWN_HOSTS_FILE)
        assert f"deeplearning-master,deeplearning-worker1,{new.address} {new.host_key}\n" in known
        assert old.host_key not in known
    assert cluster.by_index() == {1: new.instance_id, 2: workers[0].instance_id, 3: workers[1].instance_id}


def test_master_counts_the_instances_that_have_not_joined_yet(cluster: SimulatedCluster) -> None:
    nodes = form_cluster(cluster)
    master, lost, other = nodes
    assert master.text(contract.ARRIVING_NODES_FILE) == "0\n"
    assert not any(under_root(node.root, contract.ARRIVING_NODES_FILE).exists() for node in (lost, other))
    cluster.terminate(lost.instance_id)
    cluster.run([master, other], until=lambda: master.text(contract.ARRIVING_NODES_FILE) == "1\n")
    new = cluster.boot_replacement("worker", of=nodes)
    run_until_agreed(cluster, [master, new, other])
    assert master.text(contract.ARRIVING_NODES_FILE) == "0\n"


def test_no_ssh_key_is_authorized_without_a_master(cluster: SimulatedCluster) -> None:
    nodes = form_cluster(cluster)
    old, *workers = nodes
    old.metadata.notice = TerminationNotice(is_terminating=True)
    cluster.run(nodes, until=lambda: bool(cluster.completed_hooks))
    assert [authorized_keys(node) for node in nodes] == ["", "", ""]
    assert "deeplearning-master" not in workers[0].text(contract.HOSTS_FILE)
    cluster.terminate(old.instance_id)
    new = cluster.boot_replacement("master", of=nodes)
    run_until_agreed(cluster, [new, *workers])
    assert [authorized_keys(node) for node in (new, *workers)] == [key_of(new)] * 3


def test_second_master_is_trusted_only_after_the_end_of_the_first(cluster: SimulatedCluster) -> None:
    nodes = form_cluster(cluster)
    old, *workers = nodes
    cluster.set_lifecycle_state(old.instance_id, "Terminating:Wait")
    cluster.clients.autoscaling.set_desired_capacity(AutoScalingGroupName=f"{CLUSTER}-master", DesiredCapacity=1)
    new = cluster.boot_replacement("master", of=nodes)
    for _ in range(5):
        for node in [new, *nodes]:
            node.agent.run_pass()
        cluster.clock.now += 10.0
    assert cluster.by_index()[1] == old.instance_id
    assert [authorized_keys(node) for node in workers] == ["", ""]
    cluster.clients.ec2.terminate_instances(InstanceIds=[old.instance_id])
    cluster.drop_from_group(old.instance_id)
    run_until_agreed(cluster, [new, *workers])
    assert [authorized_keys(node) for node in workers] == [key_of(new)] * 2


def test_worker_from_a_masters_image_has_no_key(cluster: SimulatedCluster) -> None:
    nodes = form_cluster(cluster)
    master, lost, kept = nodes
    cluster.terminate(lost.instance_id)
    worker = cluster.boot_replacement("worker", of=nodes)
    brought = under_root(worker.root, contract.CLUSTER_KEY_DIR)
    shutil.copytree(under_root(master.root, contract.CLUSTER_KEY_DIR), brought)
    run_until_agreed(cluster, [master, worker, kept])
    assert not brought.exists()
    assert worker.text(contract.SSH_CLIENT_CONFIG_FILE) == kept.text(contract.SSH_CLIENT_CONFIG_FILE)


def test_master_from_a_masters_image_generates_its_own_key(cluster: SimulatedCluster) -> None:
    nodes = form_cluster(cluster)
    old, *workers = nodes
    cluster.terminate(old.instance_id)
    new = cluster.boot_replacement("master", of=nodes)
    shutil.copytree(under_root(old.root, contract.CLUSTER_KEY_DIR), under_root(new.root, contract.CLUSTER_KEY_DIR))
    run_until_agreed(cluster, [new, *workers])
    assert new.text(contract.CLUSTER_KEY_FILE) == f"private half of {new.instance_id}\n"
    assert [authorized_keys(node) for node in workers] == [key_of(new)] * 2


def test_master_and_worker_lost_at_once_are_both_replaced(cluster: SimulatedCluster) -> None:
    nodes = form_cluster(cluster)
    for lost in nodes[:2]:
        cluster.terminate(lost.instance_id)
    alive = [cluster.boot_replacement("master", of=nodes), cluster.boot_replacement("worker", of=nodes), nodes[2]]
    cluster.run(alive, until=all_ready(alive))
    run_until_agreed(cluster, alive)
    assert {*cluster.by_index().values()} == {node.instance_id for node in alive}


def test_cluster_grows_by_nodes_that_join_by_themselves(cluster: SimulatedCluster) -> None:
    nodes = form_cluster(cluster, workers=1)
    cluster.clients.autoscaling.set_desired_capacity(AutoScalingGroupName=f"{CLUSTER}-worker", DesiredCapacity=2)
    nodes.append(cluster.boot_replacement("worker", of=nodes))
    run_until_agreed(cluster, nodes)
    cluster.run(nodes, until=all_ready(nodes))
    assert "DEEPLEARNING_WORKERS_COUNT=3\n" in nodes[0].text(contract.ENVIRONMENT_FILE)


@pytest.mark.parametrize(
    ("leavers", "after"), [((1, 2), (0, 3, 4)), ((3, 4), (0, 1, 2)), ((1, 4), (0, 3, 2)), ((2, 3), (0, 1, 4))]
)
def test_survivors_of_a_shrink_are_numbered_without_gaps(
    cluster: SimulatedCluster, leavers: tuple[int, int], after: tuple[int, ...]
) -> None:
    nodes = form_cluster(cluster, workers=4)
    generation = cluster.table.read_generation()
    for index in leavers:
        cluster.terminate(nodes[index].instance_id, shrink=True)
    stay = [nodes[index] for index in after]
    run_until_agreed(cluster, stay)
    # Both were gone at the coordinator's pass, so everything changed in one generation.
    assert cluster.table.read_generation() == generation + 1
    assert all("DEEPLEARNING_WORKERS_COUNT=3\n" in node.text(contract.ENVIRONMENT_FILE) for node in stay)
