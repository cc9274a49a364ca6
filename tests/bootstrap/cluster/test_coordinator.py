"""Test how the master's agent forms the membership from node records, groups and EC2's answers."""

from collections import Counter
from dataclasses import replace

import pytest

from bootstrap.cluster.coordinator import Coordinator
from bootstrap.cluster.discovery import Instance
from bootstrap.cluster.ec2_cache import ABSENT_ANSWERS, REFRESH_PASSES
from bootstrap.cluster.membership import NO_MEMBERSHIP, Membership
from bootstrap.cluster.records import NodeRecord
from bootstrap.cluster.table import Table
from bootstrap.contract import TABLE_KEY, node_record_id
from bootstrap.team_keys.keys import parse, to_tags
from tests.bootstrap.identities import NETWORKS, public_key
from tests.bootstrap.simulated_cluster import SimulatedCluster
from tests.bootstrap.simulated_node import CLUSTER, TABLE, node_config
from tests.bootstrap.team_keys.team_public_keys import ED25519


@pytest.fixture
def table(cluster: SimulatedCluster) -> Table:
    return Table(cluster.clients.dynamodb, name=TABLE, networks=NETWORKS)


@pytest.fixture
def coordinator(cluster: SimulatedCluster, table: Table) -> Coordinator:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=2)
    return new_coordinator(cluster, table)


def new_coordinator(cluster: SimulatedCluster, table: Table, *, last_known: Membership = NO_MEMBERSHIP) -> Coordinator:
    return Coordinator(
        node_config("master"),
        instance_id=cluster.instances("master")[0][0],
        table=table,
        autoscaling=cluster.clients.autoscaling,
        ec2=cluster.clients.ec2,
        last_known=last_known,
    )


def publish(cluster: SimulatedCluster, table: Table, node_type: str) -> list[str]:
    """Publish the record of every instance of the group, like its agent."""
    role = {"master": "AROAMASTER", "worker": "AROAWORKER"}[node_type]
    ids = [instance_id for instance_id, _ in cluster.instances(node_type)]
    for instance_id in ids:
        table.write_node(
            NodeRecord(
                record_id=node_record_id(role, instance_id),
                instance_id=instance_id,
                node_type=node_type,
                host_key=public_key(instance_id),
            )
        )
    return ids


def reconcile(coordinator: Coordinator, table: Table) -> Membership:
    found = coordinator.reconcile(table.read_stored())
    assert found == table.read_membership()
    return found


def by_index(membership: Membership) -> dict[int, str]:
    return {member.node_index: member.instance_id for member in membership.members}


def test_node_joins_only_with_its_record(cluster: SimulatedCluster, table: Table, coordinator: Coordinator) -> None:
    assert reconcile(coordinator, table).members == ()
    workers = publish(cluster, table, "worker")
    found = reconcile(coordinator, table)
    assert (by_index(found), found.desired_nodes) == ({2: workers[0], 3: workers[1]}, 3)
    [master] = publish(cluster, table, "master")
    assert by_index(reconcile(coordinator, table)) == {1: master, 2: workers[0], 3: workers[1]}


def test_worker_cannot_write_itself_into_the_masters_index(
    cluster: SimulatedCluster, table: Table, coordinator: Coordinator
) -> None:
    worker = publish(cluster, table, "worker")[0]
    lie = NodeRecord(
        record_id=node_record_id("AROAWORKER", worker),
        instance_id=cluster.instances("master")[0][0],
        node_type="master",
        host_key=public_key("lie"),
    )
    table.write_node(lie)
    found = reconcile(coordinator, table)
    assert 1 not in by_index(found)
    assert found.members[0].instance_id == worker


def test_replacement_takes_the_free_index_and_survivors_stay(
    cluster: SimulatedCluster, table: Table, coordinator: Coordinator
) -> None:
    publish(cluster, table, "master")
    publish(cluster, table, "worker")
    before = by_index(reconcile(coordinator, table))
    cluster.terminate(before[2])
    assert by_index(reconcile(coordinator, table)) == {1: before[1], 3: before[3]}
    [replacement] = set(publish(cluster, table, "worker")) - set(before.values())
    found = reconcile(coordinator, table)
    assert by_index(found) == {1: before[1], 2: replacement, 3: before[3]}
    assert found.generation == 3


def test_replaced_master_takes_index_1(cluster: SimulatedCluster, table: Table, coordinator: Coordinator) -> None:
    publish(cluster, table, "master")
    publish(cluster, table, "worker")
    before = by_index(reconcile(coordinator, table))
    cluster.terminate(before[1])
    [master] = publish(cluster, table, "master")
    after = by_index(reconcile(new_coordinator(cluster, table), table))
    assert after == before | {1: master}
    assert master != before[1]


def test_running_instance_missing_from_its_group_keeps_its_index(
    cluster: SimulatedCluster, table: Table, coordinator: Coordinator
) -> None:
    publish(cluster, table, "worker")
    before = by_index(reconcile(coordinator, table))
    cluster.drop_from_group(before[2])
    held = reconcile(coordinator, table)
    assert by_index(held) == before
    assert [member.node_index for member in held.active_members] == [2, 3]
    cluster.clients.ec2.terminate_instances(InstanceIds=[before[2]])
    assert by_index(reconcile(coordinator, table)) == {3: before[3]}


@pytest.mark.parametrize("state", ["shutting-down", "stopped"])
def test_index_of_a_detached_instance_is_kept_until_its_end(
    cluster: SimulatedCluster, table: Table, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    publish(cluster, table, "worker")
    before = by_index(reconcile(coordinator, table))
    cluster.drop_from_group(before[2])
    dying = Instance(instance_id=before[2], state=state, address="10.0.0.1", in_group=True)
    there = Instance(instance_id=before[3], state="running", address="10.0.0.2", in_group=True)
    found = {before[2]: dying, before[3]: there}
    monkeypatch.setattr("bootstrap.cluster.ec2_cache.describe_instances", lambda *_: found)
    held = reconcile(coordinator, table)
    assert by_index(held) == before
    assert [member.node_index for member in held.active_members] == [3]


def test_instance_unknown_to_ec2_counts_as_gone_after_consecutive_misses(
    cluster: SimulatedCluster, table: Table, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(cluster, table, "worker")
    before = by_index(reconcile(coordinator, table))
    cluster.drop_from_group(before[2])
    there = {before[3]: Instance(instance_id=before[3], state="running", address="10.0.0.2", in_group=True)}
    monkeypatch.setattr("bootstrap.cluster.ec2_cache.describe_instances", lambda *_: there)
    for _ in range(ABSENT_ANSWERS - 1):
        assert by_index(reconcile(coordinator, table)) == before
    assert by_index(reconcile(coordinator, table)) == {3: before[3]}


def test_detached_instance_leaves_the_membership(
    cluster: SimulatedCluster, table: Table, coordinator: Coordinator
) -> None:
    publish(cluster, table, "worker")
    before = by_index(reconcile(coordinator, table))
    cluster.clients.autoscaling.detach_instances(
        InstanceIds=[before[2]], AutoScalingGroupName=f"{CLUSTER}-worker", ShouldDecrementDesiredCapacity=False
    )
    assert by_index(reconcile(coordinator, table)) == {3: before[3]}


@pytest.mark.parametrize(
    ("state", "address", "held"),
    [
        ("terminated", None, False),
        ("shutting-down", None, True),
        ("stopped", "10.0.0.1", True),
        ("stopping", None, True),
    ],
)
def test_index_is_kept_until_ec2_reports_termination(
    cluster: SimulatedCluster,
    table: Table,
    coordinator: Coordinator,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    address: str | None,
    held: bool,
) -> None:
    publish(cluster, table, "worker")
    before = reconcile(coordinator, table)
    # moto's groups replace an ended instance immediately; real ones notice later, and a lifecycle hook may still run.
    dead = {
        member.instance_id: Instance(instance_id=member.instance_id, state=state, address=address, in_group=True)
        for member in before.members
    }
    monkeypatch.setattr("bootstrap.cluster.ec2_cache.describe_instances", lambda *_: dead)
    assert by_index(reconcile(new_coordinator(cluster, table), table)) == (by_index(before) if held else {})


def test_member_missing_from_one_ec2_answer_stays(
    cluster: SimulatedCluster, table: Table, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(cluster, table, "worker")
    before = reconcile(coordinator, table)
    monkeypatch.setattr("bootstrap.cluster.ec2_cache.describe_instances", lambda *_: {})
    assert reconcile(new_coordinator(cluster, table), table) == before


def test_node_indexes_and_generation_survive_an_emptied_table(
    cluster: SimulatedCluster, table: Table, coordinator: Coordinator
) -> None:
    publish(cluster, table, "master")
    publish(cluster, table, "worker")
    before = by_index(reconcile(coordinator, table))
    cluster.terminate(before[2])
    reconcile(coordinator, table)
    publish(cluster, table, "worker")
    replaced = reconcile(coordinator, table)
    # If indexes were assigned again, the survivor would come before its younger replacement.
    assert replaced.members[-1].instance_id == before[3]
    for item in cluster.clients.dynamodb.scan(TableName=TABLE)["Items"]:
        cluster.clients.dynamodb.delete_item(TableName=TABLE, Key={TABLE_KEY: item[TABLE_KEY]})
    found = reconcile(coordinator, table)
    assert by_index(found) == by_index(replaced)
    assert found.generation > replaced.generation


def test_ec2_is_queried_on_changes_and_periodically(
    cluster: SimulatedCluster, table: Table, coordinator: Coordinator, calls: Counter[str]
) -> None:
    publish(cluster, table, "master")
    publish(cluster, table, "worker")
    before = by_index(reconcile(coordinator, table))
    reconcile(coordinator, table)
    calls.clear()
    for _ in range(6):
        reconcile(coordinator, table)
    assert calls["DescribeInstances"] == 6 / REFRESH_PASSES
    assert calls["DescribeAutoScalingGroups"] == 6
    assert calls["PutItem"] == calls["TransactWriteItems"] == 0
    calls.clear()
    cluster.terminate(before[2])
    reconcile(coordinator, table)
    assert calls["DescribeInstances"] == 1


def test_slower_of_two_coordinators_takes_over_what_the_faster_wrote(
    cluster: SimulatedCluster, table: Table, coordinator: Coordinator
) -> None:
    publish(cluster, table, "master")
    seen = table.read_stored()
    publish(cluster, table, "worker")
    fast = new_coordinator(cluster, table).reconcile(seen)
    assert coordinator.reconcile(seen) == fast
    assert table.read_membership() == fast
    assert reconcile(coordinator, table).generation == 1


def test_team_keys_stay_when_a_restarted_agent_loses_a_race(
    cluster: SimulatedCluster, table: Table, coordinator: Coordinator
) -> None:
    # After its start, an agent reads a state file that contains no keys.
    keys = f"{ED25519} anna"
    group = {"ResourceId": f"{CLUSTER}-master", "ResourceType": "auto-scaling-group", "PropagateAtLaunch": False}
    rows = [{"Key": key, "Value": value, **group} for key, value in to_tags(parse(keys)).items()]
    cluster.clients.autoscaling.create_or_update_tags(Tags=rows)  # type: ignore[arg-type]
    publish(cluster, table, "master")
    before = reconcile(coordinator, table)
    seen = table.read_stored()
    publish(cluster, table, "worker")
    reconcile(coordinator, table)
    restarted = new_coordinator(cluster, table, last_known=replace(before, team_keys=""))
    assert restarted.reconcile(seen).team_keys == keys
