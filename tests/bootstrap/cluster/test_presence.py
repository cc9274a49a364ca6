"""Check which nodes the lists name as nodes arrive, go into standby and leave."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from bootstrap.cluster.coordinator import Coordinator
from bootstrap.cluster.discovery import Instance
from bootstrap.cluster.membership import Membership
from bootstrap.cluster.rate_limit import MIN_CHANGE_INTERVAL_S
from bootstrap.cluster.records import NodeRecord
from bootstrap.contract import TABLE_KEY, NodeType, node_record_id
from tests.bootstrap.identities import public_key
from tests.bootstrap.simulated_cluster import SimulatedCluster
from tests.bootstrap.simulated_node import CLUSTER, TABLE, node_config

ROLES: dict[NodeType, str] = {"master": "AROAMASTER", "worker": "AROAWORKER"}


def record(instance_id: str, node_type: NodeType) -> NodeRecord:
    return NodeRecord(
        record_id=node_record_id(ROLES[node_type], instance_id),
        instance_id=instance_id,
        node_type=node_type,
        host_key=public_key(instance_id),
    )


def publish(cluster: SimulatedCluster) -> None:
    for node_type in ROLES:
        for instance_id, _ in cluster.instances(node_type):
            cluster.table.write_node(record(instance_id, node_type))


def reconcile(cluster: SimulatedCluster, coordinator: Coordinator) -> Membership:
    return coordinator.reconcile(cluster.table.read_stored())


def present(membership: Membership) -> dict[int, str]:
    return {member.node_index: member.instance_id for member in membership.active_members}


def new_coordinator(cluster: SimulatedCluster) -> Coordinator:
    return Coordinator(
        node_config("master"),
        instance_id=cluster.instances("master")[0][0],
        table=cluster.table,
        autoscaling=cluster.clients.autoscaling,
        ec2=cluster.clients.ec2,
        monotonic=cluster.clock,
    )


def form_cluster(cluster: SimulatedCluster, *, workers: int = 2) -> tuple[Coordinator, dict[int, str]]:
    """Return a coordinator after all instances have joined, and the instances by index."""
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=workers)
    publish(cluster)
    coordinator = new_coordinator(cluster)
    reconcile(cluster, coordinator)
    return coordinator, cluster.by_index()


def test_draining_node_leaves_the_lists_and_keeps_its_index(cluster: SimulatedCluster) -> None:
    coordinator, before = form_cluster(cluster)
    own_record = record(before[2], "worker")
    cluster.table.write_node(replace(own_record, draining=True))
    assert present(reconcile(cluster, coordinator)) == {1: before[1], 3: before[3]}
    assert cluster.by_index() == before
    cluster.table.write_node(own_record)
    cluster.clock.now += MIN_CHANGE_INTERVAL_S
    assert present(reconcile(cluster, coordinator)) == before


# ---- one node's record changes the membership once a minute ----

PASS_S = 2.0
"""Seconds between reconciliations while a node is arriving."""


def generations(cluster: SimulatedCluster, coordinator: Coordinator, records: Iterator[NodeRecord | None]) -> list[int]:
    """Write one record before each pass, None for an unusable one; return the generation after each pass."""
    found = []
    for written in records:
        if written is not None:
            cluster.table.write_node(written)
        else:
            record_id = node_record_id(ROLES["worker"], cluster.by_index()[2])
            cluster.clients.dynamodb.put_item(TableName=TABLE, Item={TABLE_KEY: {"S": record_id}})
        found.append(reconcile(cluster, coordinator).generation)
        cluster.clock.now += PASS_S
    return found


@pytest.mark.parametrize("change", ["drains and does not", "other keys", "drains, nothing usable, does not"])
def test_membership_follows_a_changing_record_once_a_minute(cluster: SimulatedCluster, change: str) -> None:
    coordinator, before = form_cluster(cluster)
    own_record = record(before[2], "worker")
    drains = replace(own_record, draining=True)
    passes = 150
    cycle: dict[str, Iterator[NodeRecord | None]] = {
        "drains and does not": itertools.cycle([drains, own_record]),
        "other keys": (replace(own_record, host_key=public_key(number)) for number in itertools.count()),
        "drains, nothing usable, does not": itertools.cycle([drains, None, own_record, None]),
    }
    found = generations(cluster, coordinator, itertools.islice(cycle[change], passes))
    minutes = passes * PASS_S / MIN_CHANGE_INTERVAL_S
    # Draining counts immediately, so a minute has up to two changes.
    assert 2 <= found[-1] - found[0] <= 2 * minutes
    cluster.table.write_node(own_record)
    cluster.clock.now += MIN_CHANGE_INTERVAL_S
    assert present(reconcile(cluster, coordinator)) == before


def test_termination_notice_counts_at_once_despite_earlier_changes(cluster: SimulatedCluster) -> None:
    coordinator, before = form_cluster(cluster)
    own_record = record(before[2], "worker")
    for key in ("one", "two", "three"):
        cluster.table.write_node(replace(own_record, host_key=public_key(key)))
        reconcile(cluster, coordinator)
    cluster.table.write_node(replace(own_record, host_key=public_key("four"), draining=True))
    found = reconcile(cluster, coordinator)
    assert present(found) == {1: before[1], 3: before[3]}
    held = found.member(before[2])
    assert held is not None
    assert held.host_key == public_key("one")


def test_one_nodes_changes_delay_no_other_node(cluster: SimulatedCluster) -> None:
    coordinator, before = form_cluster(cluster)
    cluster.table.write_node(replace(record(before[2], "worker"), host_key=public_key("new")))
    reconcile(cluster, coordinator)
    cluster.table.write_node(replace(record(before[3], "worker"), host_key=public_key("new too")))
    keys = {member.node_index: member.host_key for member in reconcile(cluster, coordinator).members}
    assert (keys[2], keys[3]) == (public_key("new"), public_key("new too"))


@pytest.mark.parametrize("state", ["Terminating:Wait", "Terminating:Proceed", "EnteringStandby", "Standby"])
def test_node_outside_its_group_leaves_the_lists_and_keeps_its_index(cluster: SimulatedCluster, state: str) -> None:
    coordinator, before = form_cluster(cluster)
    cluster.set_lifecycle_state(before[3], state)
    assert present(reconcile(cluster, coordinator)) == {1: before[1], 2: before[2]}
    assert cluster.by_index() == before
    cluster.set_lifecycle_state(before[3], "InService")
    assert present(reconcile(cluster, coordinator)) == before


def test_stopped_node_leaves_the_lists_and_is_queried_until_it_returns(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, before = form_cluster(cluster)
    instances = {
        name: Instance(instance_id=name, state="running", address=address, in_group=True)
        for node_type in ROLES
        for name, address in cluster.instances(node_type)
    }
    monkeypatch.setattr("bootstrap.cluster.ec2_cache.describe_instances", lambda *_: dict(instances))
    instances[before[2]] = replace(instances[before[2]], state="stopped")
    # A new coordinator calls EC2; later passes rely on the group, which soon stops counting a stopped instance.
    coordinator = new_coordinator(cluster)
    assert present(reconcile(cluster, coordinator)) == {1: before[1], 3: before[3]}
    instances[before[2]] = replace(instances[before[2]], state="running")
    assert present(reconcile(cluster, coordinator)) == before


def lose_record(cluster: SimulatedCluster, instance_id: str) -> None:
    key = {TABLE_KEY: {"S": record(instance_id, "worker").record_id}}
    cluster.clients.dynamodb.delete_item(TableName=TABLE, Key=key)


def test_member_without_a_record_stays_while_its_group_has_it(cluster: SimulatedCluster) -> None:
    coordinator, before = form_cluster(cluster)
    lose_record(cluster, before[2])
    assert present(reconcile(cluster, coordinator)) == before
    cluster.set_lifecycle_state(before[2], "Terminating:Wait")
    assert present(reconcile(cluster, coordinator)) == {1: before[1], 3: before[3]}
    assert cluster.by_index() == before


def test_losing_its_record_does_not_bring_a_member_back(cluster: SimulatedCluster) -> None:
    coordinator, before = form_cluster(cluster)
    cluster.table.write_node(replace(record(before[2], "worker"), draining=True))
    reconcile(cluster, coordinator)
    lose_record(cluster, before[2])
    assert present(reconcile(cluster, coordinator)) == {1: before[1], 3: before[3]}


def test_node_cannot_keep_itself_in_the_lists(cluster: SimulatedCluster) -> None:
    # A node's record can mark it as draining; only AWS reports that it is present.
    coordinator, before = form_cluster(cluster)
    cluster.set_lifecycle_state(before[2], "Terminating:Wait")
    cluster.table.write_node(replace(record(before[2], "worker"), draining=False))
    assert present(reconcile(cluster, coordinator)) == {1: before[1], 3: before[3]}


def test_early_replacement_waits_for_the_index_as_booting(cluster: SimulatedCluster) -> None:
    coordinator, before = form_cluster(cluster)
    assert coordinator.arriving == frozenset()
    cluster.set_lifecycle_state(before[2], "Terminating:Wait")
    cluster.clients.autoscaling.set_desired_capacity(AutoScalingGroupName=f"{CLUSTER}-worker", DesiredCapacity=2)
    publish(cluster)
    [early] = {name for name, _ in cluster.instances("worker")} - set(before.values())
    reconcile(cluster, coordinator)
    assert cluster.by_index() == before
    assert coordinator.arriving == {early}
    cluster.clients.ec2.terminate_instances(InstanceIds=[before[2]])
    cluster.drop_from_group(before[2])
    reconcile(cluster, coordinator)
    assert cluster.by_index() == before | {2: early}
    assert coordinator.arriving == frozenset()


@pytest.mark.parametrize("leaving_indexes", [(2, 3), (4, 5), (2, 5)])
def test_shrink_closes_the_gaps_in_one_generation(cluster: SimulatedCluster, leaving_indexes: tuple[int, int]) -> None:
    coordinator, before = form_cluster(cluster, workers=4)
    cluster.terminate(before[leaving_indexes[0]], shrink=True)
    cluster.set_lifecycle_state(before[leaving_indexes[1]], "Terminating:Wait")
    cluster.set_desired("worker", 2)
    first = reconcile(cluster, coordinator)
    stay = {node_index: name for node_index, name in before.items() if node_index not in leaving_indexes}
    assert present(first) == stay
    assert reconcile(cluster, coordinator) == first
    cluster.clients.ec2.terminate_instances(InstanceIds=[before[leaving_indexes[1]]])
    cluster.drop_from_group(before[leaving_indexes[1]])
    last = reconcile(cluster, coordinator)
    assert (last.generation, last.desired_nodes) == (first.generation + 1, 3)
    moved = [name for node_index, name in stay.items() if node_index > 3]
    free = [node_index for node_index in (2, 3) if node_index not in stay]
    assert present(last) == {node_index: name for node_index, name in stay.items() if node_index <= 3} | dict(
        zip(free, moved, strict=True)
    )
    assert reconcile(cluster, coordinator) == last


def test_key_of_the_cluster_reaches_the_membership(cluster: SimulatedCluster) -> None:
    coordinator, before = form_cluster(cluster)
    cluster.table.write_node(replace(record(before[1], "master"), ssh_key=public_key("cluster")))
    master = reconcile(cluster, coordinator).master
    assert master is not None
    assert (master.instance_id, master.ssh_key) == (before[1], public_key("cluster"))
