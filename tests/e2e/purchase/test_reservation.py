"""Test a cluster in a Capacity Reservation: all nodes are in it, the master too, and none is launched outside of it.

``make soak`` runs it. The tests build on each other: the reservation is too small for the first deploy.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import pytest

from bootstrap.contract import CLUSTER_TAG, MASTER
from local.faults.clients import client
from local.run.user import USER_SETTINGS, User
from tests.e2e.support.checkouts import Edit
from tests.e2e.support.deployed_cluster import STACK
from tests.e2e.support.ec2_nodes import (
    expected_workers_seen,
    instances_by_node_type,
    running_instances,
    wait_for_another,
    workers_seen_on,
)
from tests.e2e.support.group_states import members
from tests.e2e.support.laptop import Laptop, new_laptop

PLACES = 2
ZONE = "us-east-1b"
HOSTS = ("worker1", "worker2")
REFUSED = "The requested reservation does not have sufficient compatible and available capacity for this request."
SHORT_TIMEOUTS: Final = (
    Edit(
        file="stacks/nodes/node_group.py",
        old="CREATION_TIMEOUT: Final = cdk.Duration.minutes(30)\n",
        new="CREATION_TIMEOUT: Final = cdk.Duration.seconds(10)\n",
    ),
    Edit(
        file="bootstrap/contract.py",
        old="DRAIN_HOOK_HEARTBEAT_TIMEOUT_S: Final = 30\n",
        new="DRAIN_HOOK_HEARTBEAT_TIMEOUT_S: Final = 2\n",
    ),
)
"""Edits that shorten what a deploy without capacity waits for: half an hour, and its nodes' end."""


@pytest.fixture(scope="module")
def reservation() -> Iterator[str]:
    made = client("ec2").create_capacity_reservation(
        InstanceType=USER_SETTINGS["instance_type"],
        InstancePlatform="Linux/UNIX",
        AvailabilityZone=ZONE,
        InstanceCount=PLACES,
    )["CapacityReservation"]["CapacityReservationId"]
    yield made
    client("ec2").cancel_capacity_reservation(CapacityReservationId=made)


@pytest.fixture(scope="module")
def laptop(user: User, reservation: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    settings = {
        "purchase": "reservation",
        "capacity_reservation": reservation,
        "availability_zone": ZONE,
        "worker_count": PLACES,
    }
    made = new_laptop(user, tmp_path_factory.mktemp("reservation"), settings)
    yield made
    made.run("cdk", "destroy", "--force")
    assert free_places(reservation) == PLACES


def free_places(reservation: str) -> int:
    answer = client("ec2").describe_capacity_reservations(CapacityReservationIds=[reservation])
    return int(answer["CapacityReservations"][0]["AvailableInstanceCount"])


def launched() -> list[dict[str, Any]]:
    """Return every instance that the cluster has launched, ended ones included."""
    filters: Any = [{"Name": f"tag:{CLUSTER_TAG}", "Values": [STACK]}]
    reservations = client("ec2").describe_instances(Filters=filters)["Reservations"]
    return [instance for launch in reservations for instance in launch["Instances"]]


def preflight(laptop: Laptop) -> str:
    """Return what preflight says of the reservation, which the local AWS can answer."""
    printed = laptop.start("dlcluster", "preflight").communicate()[0]
    [finding] = [line for line in printed.splitlines() if re.match(r"\w+ +reservation ", line)]
    return re.sub(" +", " ", finding)


def test_reservation_that_is_too_small_fails_the_deploy_and_starts_nothing_elsewhere(
    laptop: Laptop, reservation: str
) -> None:
    assert f"reservation {reservation} has room for 2 of 3 nodes, the master among them" in preflight(laptop)
    for edit in SHORT_TIMEOUTS:
        edit.make(laptop.checkout)
    deploy = laptop.start("cdk", "deploy")
    printed = deploy.communicate()[0]
    assert deploy.returncode == 1, printed
    [why] = [line for line in laptop.run("dlcluster", "why").splitlines() if REFUSED in line]
    assert re.search(rf"{STACK}-(master|worker): Launching a new EC2 instance, Failed: {REFUSED}", why)
    assert [instance["CapacityReservationId"] for instance in launched()] == [reservation] * PLACES
    assert (running_instances(), free_places(reservation)) == (set(), PLACES)


def test_reservation_holds_the_master_too(laptop: Laptop, reservation: str) -> None:
    for edit in SHORT_TIMEOUTS:
        Edit(file=edit.file, old=edit.new, new=edit.old).make(laptop.checkout)
    laptop.set(worker_count=PLACES - 1)
    assert f"reservation {reservation} holds 2 x c5.large" in preflight(laptop)
    laptop.run("cdk", "deploy")
    laptop.user.write_ssh_config()
    nodes = [instance for kind in instances_by_node_type().values() for instance in kind]
    assert [(node["CapacityReservationId"], node.get("InstanceLifecycle")) for node in nodes] == [
        (reservation, None)
    ] * PLACES
    assert not any(node["Placement"].get("GroupName") for node in nodes)
    assert (free_places(reservation), len(running_instances())) == (0, PLACES)
    assert f"reservation {reservation} holds 2 x c5.large" in preflight(laptop)
    for host in HOSTS:
        assert workers_seen_on(laptop, host) == expected_workers_seen(*HOSTS, gpus=0)


def test_replaced_master_takes_its_place_again(laptop: Laptop, reservation: str) -> None:
    [lost] = [instance["InstanceId"] for instance in instances_by_node_type()[MASTER]]
    client("ec2").terminate_instances(InstanceIds=[lost])
    replacement = wait_for_another(1, than={lost})
    [master] = instances_by_node_type()[MASTER]
    assert (master["InstanceId"], master["CapacityReservationId"]) == (replacement, reservation)
    assert (free_places(reservation), running_instances()) == (0, members())
    laptop.wait_for_job_on(*(f"deeplearning-{host}" for host in HOSTS))
