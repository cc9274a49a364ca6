from collections import Counter

import pytest

from bootstrap.contract import node_record_id
from bootstrap.coordinator import Coordinator
from bootstrap.discovery import Instance
from bootstrap.membership import Membership
from bootstrap.table import NodeRecord, Table
from tests.bootstrap.conftest import CLUSTER, TABLE, Cluster, node_config


@pytest.fixture
def table(cluster: Cluster) -> Table:
    return Table(cluster.clients.dynamodb, name=TABLE)


@pytest.fixture
def coordinator(cluster: Cluster, table: Table) -> Coordinator:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=2)
    return new_coordinator(cluster, table)


def new_coordinator(cluster: Cluster, table: Table) -> Coordinator:
    return Coordinator(
        node_config("master"),
        table=table,
        autoscaling=cluster.clients.autoscaling,
        ec2=cluster.clients.ec2,
    )


def publish(cluster: Cluster, table: Table, node_type: str) -> list[str]:
    """Every instance of the group publishes its record, as its agent would."""
    role = {"master": "AROAMASTER", "worker": "AROAWORKER"}[node_type]
    ids = [instance_id for instance_id, _ in cluster.instances(node_type)]
    for instance_id in ids:
        table.write_node(
            NodeRecord(
                record_id=node_record_id(role, instance_id),
                instance_id=instance_id,
                node_type=node_type,
                host_key=f"ssh-ed25519 AAAA{instance_id.removeprefix('i-')}",
            )
        )
    return ids


def look(coordinator: Coordinator, table: Table) -> Membership:
    found = coordinator.reconcile(table.read_membership(consistent=True))
    assert found == table.read_membership(consistent=True)
    return found


def slots(membership: Membership) -> dict[int, str]:
    return {member.slot: member.instance_id for member in membership.members}


def terminate(cluster: Cluster, instance_id: str) -> None:
    cluster.clients.autoscaling.terminate_instance_in_auto_scaling_group(
        InstanceId=instance_id, ShouldDecrementDesiredCapacity=False
    )


def test_node_joins_only_with_its_record(cluster: Cluster, table: Table, coordinator: Coordinator) -> None:
    assert look(coordinator, table).members == ()
    workers = publish(cluster, table, "worker")
    found = look(coordinator, table)
    assert (slots(found), found.expected) == ({2: workers[0], 3: workers[1]}, 3)
    [master] = publish(cluster, table, "master")
    assert slots(look(coordinator, table)) == {1: master, 2: workers[0], 3: workers[1]}


def test_worker_cannot_write_itself_into_the_masters_slot(
    cluster: Cluster, table: Table, coordinator: Coordinator
) -> None:
    worker = publish(cluster, table, "worker")[0]
    lie = NodeRecord(
        record_id=node_record_id("AROAWORKER", worker),
        instance_id=cluster.instances("master")[0][0],
        node_type="master",
        host_key="ssh-ed25519 AAAA",
    )
    table.write_node(lie)
    found = look(coordinator, table)
    assert 1 not in slots(found)
    assert found.members[0].instance_id == worker


def test_replacement_takes_the_free_slot_and_survivors_stay(
    cluster: Cluster, table: Table, coordinator: Coordinator
) -> None:
    publish(cluster, table, "master")
    publish(cluster, table, "worker")
    before = slots(look(coordinator, table))
    terminate(cluster, before[2])
    assert slots(look(coordinator, table)) == {1: before[1], 3: before[3]}
    [replacement] = set(publish(cluster, table, "worker")) - set(before.values())
    found = look(coordinator, table)
    assert slots(found) == {1: before[1], 2: replacement, 3: before[3]}
    assert found.generation == 3


def test_replaced_master_takes_slot_1(cluster: Cluster, table: Table, coordinator: Coordinator) -> None:
    publish(cluster, table, "master")
    publish(cluster, table, "worker")
    before = slots(look(coordinator, table))
    terminate(cluster, before[1])
    [master] = publish(cluster, table, "master")
    after = slots(look(new_coordinator(cluster, table), table))
    assert after == before | {1: master}
    assert master != before[1]


def test_slot_is_held_while_ec2_says_the_instance_runs(
    cluster: Cluster, table: Table, coordinator: Coordinator
) -> None:
    publish(cluster, table, "worker")
    before = slots(look(coordinator, table))
    cluster.clients.autoscaling.detach_instances(
        InstanceIds=[before[2]],
        AutoScalingGroupName=f"{CLUSTER}-worker",
        ShouldDecrementDesiredCapacity=True,
    )
    held = look(coordinator, table)
    assert (slots(held), held.expected) == (before, 2)
    cluster.clients.ec2.terminate_instances(InstanceIds=[before[2]])
    assert slots(look(coordinator, table)) == {3: before[3]}


def test_slot_is_held_while_the_group_still_counts_the_instance(
    cluster: Cluster, table: Table, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(cluster, table, "worker")
    before = look(coordinator, table)
    # moto's groups replace a terminated instance at once; the real ones take their time to notice.
    dead = {
        member.instance_id: Instance(instance_id=member.instance_id, state="terminated", address=None)
        for member in before.members
    }
    monkeypatch.setattr("bootstrap.coordinator.describe_instances", lambda *_: dead)
    assert look(new_coordinator(cluster, table), table) == before


def test_ec2_is_asked_only_when_instances_change(
    cluster: Cluster, table: Table, coordinator: Coordinator, calls: Counter[str]
) -> None:
    publish(cluster, table, "master")
    publish(cluster, table, "worker")
    before = slots(look(coordinator, table))
    look(coordinator, table)
    calls.clear()
    for _ in range(5):
        look(coordinator, table)
    assert calls["DescribeInstances"] == 0
    assert calls["DescribeAutoScalingGroups"] == 5
    assert calls["PutItem"] == 0
    terminate(cluster, before[2])
    look(coordinator, table)
    assert calls["DescribeInstances"] == 1


def test_slower_of_two_coordinators_takes_over_what_the_faster_wrote(
    cluster: Cluster, table: Table, coordinator: Coordinator
) -> None:
    publish(cluster, table, "master")
    seen = table.read_membership(consistent=True)
    publish(cluster, table, "worker")
    fast = new_coordinator(cluster, table).reconcile(seen)
    assert coordinator.reconcile(seen) == fast
    assert table.read_membership(consistent=True) == fast
    assert look(coordinator, table).generation == 1
