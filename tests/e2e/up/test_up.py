"""Test ``dlcluster up`` on real nodes: of three zones, only the third has room for all, and the cluster starts there.

The first call is killed at ten moments, one after another, and completed by the last. Later ones are killed once each,
and completed by the next. All nodes share a directory, in whichever zone they start. ``make soak`` runs it, because it
deploys two dozen times and needs its own local AWS.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bootstrap.contract import MASTER
from local.control_plane.limits import limit_files
from local.faults import Faults
from local.faults.clients import client
from local.run.user import USER_SETTINGS, User
from stacks.prices.price_list import price_list
from tests.e2e.support.deployed_cluster import NODES, group_instances, stack_outputs
from tests.e2e.support.laptop import Laptop, new_laptop
from tests.e2e.support.leftovers import leftovers, resources_by_kind
from tests.e2e.support.shared_directory import STATE, check_that_ranks_share
from tests.e2e.up.kills import (
    BEGINS_ATTEMPT,
    DEPLOYS,
    LAUNCHES_MASTER,
    LAUNCHES_WORKERS,
    LOCKS,
    READS_GROUPS,
    UNLOCKS,
    kill_up_at,
)
from tests.waiting import wait_until

ZONES = ["us-east-1a", "us-east-1b", "us-east-1c"]
ROOM = ZONES[2]
PLACES = {ZONES[0]: 1, ZONES[1]: NODES - 1}
"""Zone a has room for one worker, zone b for the workers without the master, the third for all."""
TRIES = [f"trying {zone}" for zone in ZONES]
LAUNCHED = f"all {NODES} nodes are launched in {ROOM}"
MOMENTS = [
    [TRIES[0]],  # nothing exists
    [TRIES[0], DEPLOYS],  # CloudFormation creates the stack
    [LOCKS],  # the lock is taken
    [LAUNCHES_WORKERS],  # zone a gives one of them
    [TRIES[1]],  # it has ended
    [TRIES[1], DEPLOYS],  # CloudFormation moves the groups
    [TRIES[1], LAUNCHES_MASTER],  # zone b has no room for it
    [TRIES[2], LAUNCHES_MASTER],  # all nodes are coming
    [LAUNCHED],  # the template does not declare them
    [LAUNCHED, DEPLOYS],  # CloudFormation declares them
]
"""What the calls print and send before they are killed. A call begins where the one before it ended."""
SINGLE_MOMENTS = {
    "moved": [TRIES[1], DEPLOYS, BEGINS_ATTEMPT],  # the groups are in zone b, still empty
    "launching": [TRIES[2], LAUNCHES_WORKERS],  # the workers are coming, but nobody reads the answer
    "waiting": [LAUNCHED, DEPLOYS, UNLOCKS, READS_GROUPS],  # all nodes boot in zone c
}
"""The same for a call that is killed once, by its state then."""
SPOT_PLACES = {ZONES[0]: 1, ZONES[1]: NODES - 1, ZONES[2]: 0}
UP_S = 600
HEAL_S = 180.0
MOUNT_S = 90.0


@pytest.fixture(scope="module")
def laptop(user: User, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    settings = {"worker_count": NODES - 1, "zones": ZONES, "shared_storage": "efs"}
    made = new_laptop(user, tmp_path_factory.mktemp("up"), settings)
    limit(PLACES)
    yield made
    limits_file().unlink()


def limits_file() -> Path:
    return Path(os.environ["LOCAL_AWS_DIR"], limit_files.CAPACITY_FILE)


def limit(capacities: Mapping[str, int], spot_capacities: Mapping[str, int] | None = None) -> None:
    """Limit the nodes that fit in each zone."""
    node_type = USER_SETTINGS["instance_type"]
    limited = [
        limit_files.Capacity(instance_type=node_type, zone=zone, count=count, spot=spot)
        for spot, counts in ((False, capacities), (True, spot_capacities or {}))
        for zone, count in counts.items()
    ]
    limit_files.write_capacities(limits_file(), limited)


def members() -> dict[str, dict[str, Any]]:
    """Return the instances of both groups by ID."""
    outputs = stack_outputs()
    groups = [group_instances(outputs[f"{kind}AutoScalingGroup"]) for kind in ("Master", "Worker")]
    return {instance["InstanceId"]: instance for group in groups for instance in group}


def costing() -> set[str]:
    """Return every instance that costs money, whether or not it belongs to the cluster."""
    filters: Any = [{"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}]
    reservations = client("ec2").describe_instances(Filters=filters)["Reservations"]
    return {instance["InstanceId"] for reservation in reservations for instance in reservation["Instances"]}


def reserved() -> list[str]:
    """Return every capacity reservation."""
    reservations = client("ec2").describe_capacity_reservations()["CapacityReservations"]
    return [reservation["CapacityReservationId"] for reservation in reservations]


def test_up_killed_at_ten_moments_is_completed_by_the_next(laptop: Laptop) -> None:
    for moment in MOMENTS:
        kill_up_at(laptop, *moment)
        assert len(costing()) <= NODES, moment
    run_up_to_the_end(laptop)


def run_up_to_the_end(laptop: Laptop) -> None:
    """Run ``dlcluster up``; afterwards the cluster is whole in the zone with room, and nothing is anywhere else."""
    printed = laptop.run("dlcluster", "up", "--yes")
    assert f"deeplearning is running in {ROOM}: {NODES} nodes" in printed
    nodes = members()
    assert {node["Placement"]["AvailabilityZone"] for node in nodes.values()} == {ROOM}
    assert (len(nodes), costing()) == (NODES, {*nodes})
    addresses = client("ec2").describe_addresses()["Addresses"]
    # The master's and the NAT gateway's, as for any cluster.
    assert (len(addresses), reserved()) == (2, [])
    assert {address.get("InstanceId") for address in addresses} >= {node for node in nodes if _is_master(nodes[node])}
    assert laptop.settings["availability_zone"] == ROOM
    printed = laptop.run("dlcluster", "run", "--no-sync", "--", "echo", "here")
    assert len({line.split()[0] for line in printed.splitlines() if " [0] " in line}) == NODES


def _is_master(instance: dict[str, Any]) -> bool:
    return any(tag["Value"] == MASTER for tag in instance["Tags"] if tag["Key"] == "deeplearning:node-type")


def check_shared_directory(laptop: Laptop) -> None:
    """Mount the directory on all nodes, and use it from all ranks of a job."""
    laptop.user.write_ssh_config()
    hosts = [f"deeplearning-worker{index}" for index in range(1, NODES + 1)]

    def states() -> list[str]:
        return [laptop.user.ssh(host, STATE).strip() for host in hosts]

    wait_until(lambda: states() == ["mounted"] * NODES, "all mounts", timeout_s=MOUNT_S, every_s=1.0)
    check_that_ranks_share(lambda command: laptop.user.ssh("deeplearning-master", command), nodes=NODES)


def test_all_nodes_mount_the_file_system_in_the_chosen_zone(laptop: Laptop) -> None:
    file_system = stack_outputs()["SharedStorage"]
    targets = client("efs").describe_mount_targets(FileSystemId=file_system)["MountTargets"]
    assert sorted(target["AvailabilityZoneName"] for target in targets) == ZONES
    check_shared_directory(laptop)


def test_lost_node_is_replaced_in_the_same_zone(laptop: Laptop) -> None:
    before = {*members()}
    faults = Faults.current()
    lost = faults.instances("deeplearning")[2]
    faults.terminate(lost)

    def is_whole() -> bool:
        status = json.loads(laptop.run("dlcluster", "status", "--json"))
        ready = [node for node in status["nodes"] if node["state"] == "running"]
        return lost not in members() and len(ready) == NODES == len(members())

    wait_until(is_whole, "the lost node's replacement", timeout_s=HEAL_S, every_s=2.0)
    nodes = members()
    assert {*nodes} - before
    assert {node["Placement"]["AvailabilityZone"] for node in nodes.values()} == {ROOM}


def test_deploy_keeps_the_nodes_where_they_are(laptop: Laptop) -> None:
    before = {*members()}
    laptop.run("cdk", "deploy", "-c", "tags=team=vision")
    assert {*members()} == before
    refused = laptop.start("cdk", "deploy", "-c", f"availability_zone={ZONES[0]}")
    printed, _ = refused.communicate(timeout=UP_S)
    assert refused.returncode == 1
    assert f"availability_zone of a running cluster cannot change, got {ZONES[0]}" in printed


@pytest.mark.parametrize("moment", SINGLE_MOMENTS)
def test_up_killed_once_is_completed_by_the_next(laptop: Laptop, moment: str) -> None:
    laptop.run("dlcluster", "pause", "--yes")
    assert costing() == set()
    kill_up_at(laptop, *SINGLE_MOMENTS[moment])
    assert len(costing()) <= NODES
    run_up_to_the_end(laptop)


def test_until_with_room_nowhere_leaves_only_what_it_names(laptop: Laptop) -> None:
    laptop.run("dlcluster", "pause", "--yes")
    limit({**PLACES, ROOM: 0})
    # The next full minute may be too soon for a second round.
    until = f"{datetime.now() + timedelta(minutes=2):%H:%M}"
    process = laptop.start("dlcluster", "up", "--yes", "--until", until)
    printed, _ = process.communicate(timeout=UP_S)
    assert process.returncode == 1
    assert f"no zone had capacity for all {NODES} nodes until {until}; deeplearning has no nodes" in printed
    assert (costing(), reserved(), members()) == (set(), [], {})
    left, prices = resources_by_kind(), price_list(client("ec2").meta.region_name)
    nat, addresses = len(left["nat gateways"]), len(left["addresses"])
    # The master's address is part of the stack.
    assert (nat, addresses) == (1, 2)
    named = f"NAT gateway {nat * prices.nat_gateway_hour:.3f}, public addresses"
    assert f"({named} {addresses * prices.public_address_hour:.3f}), and the bucket" in printed
    assert f" and the file system {prices.efs_gb_month} per GB and month" in printed
    assert client("ec2").describe_volumes()["Volumes"] == []
    assert laptop.settings.get("availability_zone") is None


def test_by_spot_score_the_best_zone_is_tried_first(laptop: Laptop) -> None:
    limit({}, SPOT_PLACES)
    laptop.set(purchase="spot")
    process = laptop.start("dlcluster", "up", "--by-spot-score", "--yes")
    printed, _ = process.communicate(timeout=UP_S)
    assert process.returncode == 0, printed
    best, *others = (ZONES[1], ZONES[0], ZONES[2])
    assert f"dlcluster: spot placement scores, from 1 to 10: {best} 3, {others[0]} 1, {others[1]} 1\n" in printed
    assert re.findall(r"trying (\S+)", printed) == [best]
    assert f"deeplearning is running in {best}: {NODES} nodes" in printed
    nodes = members()
    assert ({node["Placement"]["AvailabilityZone"] for node in nodes.values()}, costing()) == ({best}, {*nodes})
    assert sorted(node.get("InstanceLifecycle", "on-demand") for node in nodes.values()) == [
        "on-demand",
        "spot",
        "spot",
    ]
    check_shared_directory(laptop)


def test_destroy_leaves_nothing_but_the_file_system(laptop: Laptop) -> None:
    kept = stack_outputs()["SharedStorage"]
    laptop.run("cdk", "destroy", "--force")
    assert leftovers() == {}
    systems = client("efs").describe_file_systems()["FileSystems"]
    assert [(system["FileSystemId"], system["NumberOfMountTargets"]) for system in systems] == [(kept, 0)]
