"""Test on-demand nodes with four network cards each, close to each other in a cluster placement group.

``make soak`` runs it. The master trains and has four cards too, so AWS gives it no public address: the cluster is
private, and its user logs in through Session Manager. The tests share it; the last one destroys it.
"""

import re
import shlex

import pytest

from local.faults.clients import client
from local.run.user import User
from tests.e2e.support.ec2_nodes import (
    DEVICES,
    FOUR_CARDS,
    INTERFACES_OF_FOUR_CARDS,
    expected_workers_seen,
    instance_of,
    instances_by_node_type,
    interfaces,
    launch,
    workers_seen_on,
)
from tests.e2e.support.laptop import Laptop, new_laptop
from tests.e2e.support.leftovers import leftovers

HOSTS = ("worker1", "worker2")
CARDS, GPUS = 4, 8
SHOW_RANK = "echo rank $RANK of $WORLD_SIZE on $DEEPLEARNING_INSTANCE_ID"
TRAINING = "--nproc-per-node 1 python /opt/deeplearning/trainer --kv-store dist_sync --num-epochs 2"
"""Training with one process per node, as the nodes' GPUs are simulated."""


@pytest.fixture(scope="module")
def laptop(user: User, tmp_path_factory: pytest.TempPathFactory) -> Laptop:
    settings = {"instance_type": FOUR_CARDS, "private": True, "ssh_location": "", "worker_count": len(HOSTS) - 1}
    made = new_laptop(user, tmp_path_factory.mktemp("private-efa"), settings)
    made.run("cdk", "deploy")
    user.write_ssh_config()
    return made


def placement_groups() -> list[tuple[str, str]]:
    """Return the name and the strategy of every placement group of the account."""
    groups = client("ec2").describe_placement_groups()["PlacementGroups"]
    return [(group["GroupName"], group["Strategy"]) for group in groups]


def test_all_nodes_are_on_demand_in_one_cluster_placement_group(laptop: Laptop) -> None:
    nodes = [instance for kind in instances_by_node_type().values() for instance in kind]
    [(group, strategy)] = placement_groups()
    assert strategy == "cluster"
    assert [
        (node["InstanceType"], node.get("InstanceLifecycle"), node["Placement"].get("GroupName")) for node in nodes
    ] == [(FOUR_CARDS, None, group)] * len(HOSTS)


def test_all_nodes_have_an_adapter_on_every_card_and_no_public_address(laptop: Laptop) -> None:
    for kind in instances_by_node_type().values():
        for node in kind:
            assert (interfaces(node), node.get("PublicIpAddress")) == (INTERFACES_OF_FOUR_CARDS, None)
    for host in HOSTS:
        assert len(laptop.user.ssh(f"deeplearning-{host}", DEVICES).split()) == CARDS


def test_master_is_reached_through_a_session_and_is_worker1(laptop: Laptop) -> None:
    config = laptop.user.ssh_config.read_text()
    assert "ssm-proxy" in config
    assert "ProxyJump" not in config
    for host in ("master", *HOSTS):
        assert workers_seen_on(laptop, host) == expected_workers_seen(*HOSTS, gpus=GPUS)


def test_job_has_a_rank_for_every_gpu_of_every_node(laptop: Laptop) -> None:
    done = launch(laptop, shlex.quote(SHOW_RANK))
    assert (done.returncode, done.stderr) == (0, "")
    ranks = GPUS * len(HOSTS)
    assert {*done.stdout.splitlines()} == {
        f"deeplearning-{host} [{gpu}] rank {GPUS * node + gpu} of {ranks} on {instance_of(node + 1)}"
        for node, host in enumerate(HOSTS)
        for gpu in range(GPUS)
    }


def test_master_trains_with_the_other_nodes(laptop: Laptop) -> None:
    done = launch(laptop, TRAINING)
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    assert {*re.findall(rf"rank (\d)/{len(HOSTS)} host=", printed)} == {*map(str, range(len(HOSTS)))}, printed
    [accuracy] = re.findall(r"Validation-accuracy=(\S+) images/s=\S+ checkpoint=", printed)
    assert float(accuracy) >= 0.8


def test_destroy_removes_the_placement_group_with_the_nodes(laptop: Laptop) -> None:
    laptop.run("cdk", "destroy", "--force")
    assert placement_groups() == []
    assert leftovers() == {}
