"""Check how often a cluster calls AWS while nothing changes: the master's rate does not grow with the nodes."""

import math
import random
from collections import Counter

import pytest

from bootstrap.cluster.follower import MEMBER_BYTES, READ_UNIT_BYTES, ReadSlot, read_round_seconds
from bootstrap.cluster.membership import Member, Membership, members_to_json
from bootstrap.cluster.poll_interval import (
    FAST_RECONCILE_INTERVAL_S,
    FAST_RECONCILE_WINDOW_S,
    RECONCILE_INTERVAL_S,
    PollInterval,
)
from bootstrap.cluster.termination_notice import MEMBERSHIP_PROPAGATION_S, TerminationNotice
from bootstrap.contract import MAX_WORKERS
from tests.bootstrap.booted_cluster import all_ready, form_cluster, launch_nodes
from tests.bootstrap.simulated_cluster import SimulatedCluster
from tests.bootstrap.simulated_node import CLUSTER, SimulatedNode

TABLE_READS = ("GetItem", "BatchGetItem")
TABLE_WRITES = ("PutItem", "TransactWriteItems")


class AgentSchedule:
    """Agents that make their passes when due, with the calls of each."""

    def __init__(self, cluster: SimulatedCluster, calls: Counter[str]) -> None:
        self._cluster = cluster
        self._calls = calls
        self._due: dict[str, float] = {}

    def run_second(self, nodes: list[SimulatedNode]) -> dict[str, Counter[str]]:
        self._cluster.clock.now += 1.0
        spent = {node.instance_id: Counter[str]() for node in nodes}
        for node in nodes:
            if self._cluster.clock.now >= self._due.get(node.instance_id, 0.0):
                self._calls.clear()
                self._due[node.instance_id] = self._cluster.clock.now + node.agent.run_pass()
                spent[node.instance_id].update(self._calls)
        return spent

    def run_minute(self, nodes: list[SimulatedNode]) -> dict[str, Counter[str]]:
        total = {node.instance_id: Counter[str]() for node in nodes}
        for _ in range(60):
            for name, spent in self.run_second(nodes).items():
                total[name].update(spent)
        return total


@pytest.fixture
def schedule(cluster: SimulatedCluster, calls: Counter[str]) -> AgentSchedule:
    return AgentSchedule(cluster, calls)


def control_calls(spent: dict[str, Counter[str]]) -> int:
    total = sum(spent.values(), Counter[str]())
    return sum(count for name, count in total.items() if name not in TABLE_READS + TABLE_WRITES)


def table_reads(spent: Counter[str]) -> int:
    return sum(spent[name] for name in TABLE_READS)


@pytest.mark.parametrize("size", [2, 8])
def test_idle_cluster_makes_few_aws_calls(cluster: SimulatedCluster, schedule: AgentSchedule, size: int) -> None:
    nodes = form_cluster(cluster, workers=size - 1)
    schedule.run_minute(nodes)
    for _ in range(2):
        spent = schedule.run_minute(nodes)
        assert 4 <= control_calls(spent) <= 6
        assert all(2 <= table_reads(calls) <= 12 for calls in spent.values())
        assert not any(calls[name] for calls in spent.values() for name in TABLE_WRITES)
        # Only the master talks to the control plane.
        assert control_calls({node.instance_id: spent[node.instance_id] for node in nodes[1:]}) == 0


def test_instance_that_never_joins_does_not_keep_the_calls_up(
    cluster: SimulatedCluster, schedule: AgentSchedule
) -> None:
    nodes = launch_nodes(cluster)[:2]
    eager = schedule.run_minute(nodes)
    assert control_calls(eager) > 20
    for _ in range(5):
        schedule.run_minute(nodes)
    spent = schedule.run_minute(nodes)
    assert not cluster.signals
    assert control_calls(spent) <= 6
    assert all(table_reads(calls) <= 12 for calls in spent.values())


def test_second_new_instance_restarts_eager_polling() -> None:
    poll_interval = PollInterval()
    assert poll_interval.interval(frozenset(), now=0.0) == RECONCILE_INTERVAL_S
    assert poll_interval.interval({"i-1"}, now=10.0) == FAST_RECONCILE_INTERVAL_S
    assert poll_interval.interval({"i-1"}, now=10.0 + FAST_RECONCILE_WINDOW_S - 1) == FAST_RECONCILE_INTERVAL_S
    assert poll_interval.interval({"i-1"}, now=10.0 + FAST_RECONCILE_WINDOW_S) == RECONCILE_INTERVAL_S
    assert poll_interval.interval({"i-1", "i-2"}, now=900.0) == FAST_RECONCILE_INTERVAL_S
    assert poll_interval.interval({"i-1", "i-2"}, now=900.0 + FAST_RECONCILE_WINDOW_S) == RECONCILE_INTERVAL_S
    assert poll_interval.interval(frozenset(), now=2000.0) == RECONCILE_INTERVAL_S
    assert poll_interval.interval({"i-1"}, now=2001.0) == FAST_RECONCILE_INTERVAL_S


def test_ready_master_polls_often_only_while_an_instance_arrives(cluster: SimulatedCluster) -> None:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=1)
    master = cluster.boot_node("master", settings={"min_nodes": 1})
    cluster.run([master], until=all_ready([master]))
    cluster.clock.now += FAST_RECONCILE_INTERVAL_S
    assert master.agent.run_pass() == FAST_RECONCILE_INTERVAL_S
    worker = cluster.boot_node("worker", settings={"min_nodes": 1})
    cluster.run([worker, master], until=all_ready([worker]))
    cluster.clock.now += RECONCILE_INTERVAL_S
    assert master.agent.run_pass() == 6.0


def test_unready_node_slows_its_passes_after_a_while(cluster: SimulatedCluster) -> None:
    worker = launch_nodes(cluster)[1]
    assert worker.agent.run_pass() == 1.0
    cluster.clock.now += FAST_RECONCILE_WINDOW_S
    assert worker.agent.run_pass() == 6.0


def test_new_node_is_found_in_one_interval_then_polled_often(
    cluster: SimulatedCluster, schedule: AgentSchedule
) -> None:
    nodes = form_cluster(cluster, workers=1)
    schedule.run_minute(nodes)
    cluster.clients.autoscaling.set_desired_capacity(AutoScalingGroupName=f"{CLUSTER}-worker", DesiredCapacity=2)
    nodes.append(cluster.boot_replacement("worker", of=nodes))
    for _ in range(int(RECONCILE_INTERVAL_S + FAST_RECONCILE_INTERVAL_S)):
        schedule.run_second(nodes)
    assert nodes[-1].agent.is_signal_settled


def test_master_at_risk_returns_to_slow_polling(cluster: SimulatedCluster, schedule: AgentSchedule) -> None:
    nodes = form_cluster(cluster)
    nodes[0].metadata.notice = TerminationNotice(is_rebalance_recommended=True)
    schedule.run_minute(nodes)
    assert control_calls(schedule.run_minute(nodes)) <= 10


# ---- the largest cluster ----

MAX_CLUSTER_NODES = MAX_WORKERS + 1
PARTITION_UNITS = 3000
"""Reads per second that DynamoDB serves from one item."""
PASS_S = 0.05


class Reader:
    """An agent's reads of the table: it polls the generation, and reads the members when they have changed."""

    def __init__(self, dice: random.Random, *, every_s: float) -> None:
        self._dice = dice
        self._every_s = every_s
        self._read_slot = ReadSlot(dice.random)
        self._next = dice.uniform(0.0, every_s)
        self.generation = 1

    def units(self, now: float, *, generation: int) -> float:
        """Return the read units of the pass that is due now, if one is."""
        if now < self._next:
            return 0.0
        wait = self._read_slot.seconds_until_read(MAX_CLUSTER_NODES, now=now) if generation != self.generation else None
        self._next = now + min(self._every_s, max(1.0, wait or self._every_s)) * self._dice.uniform(0.75, 1.25)
        if wait != 0.0:
            return 0.5
        self._read_slot.record_read(now=now)
        self.generation = generation
        return 0.5 + math.ceil(MAX_CLUSTER_NODES * MEMBER_BYTES / READ_UNIT_BYTES)


def simulated(*, every_s: float, changes: list[float], until: float) -> tuple[list[float], float]:
    """Return the read units of each second, and the time when the last agent of the largest cluster had the change."""
    dice = random.Random(7)
    readers = [Reader(dice, every_s=every_s) for _ in range(MAX_CLUSTER_NODES)]
    seconds, informed = [0.0] * math.ceil(until), math.inf
    for step in range(int(until / PASS_S)):
        now = step * PASS_S
        generation = 1 + sum(change <= now for change in changes)
        seconds[int(now)] += sum(reader.units(now, generation=generation) for reader in readers)
        if informed == math.inf and all(reader.generation == 1 + len(changes) for reader in readers):
            informed = now
    return seconds, informed


def test_change_reaches_largest_cluster_within_table_limit() -> None:
    seconds, informed = simulated(every_s=6.0, changes=[10.0], until=40.0)
    assert max(seconds) < PARTITION_UNITS
    # A draining node waits this long for the others, one of which may have encountered an error.
    assert informed - 10.0 < MEMBERSHIP_PROPAGATION_S - 4.0


def test_startup_of_largest_cluster_stays_within_table_limit() -> None:
    changes = [2.0 * number for number in range(1, 20)]
    seconds, informed = simulated(every_s=1.0, changes=changes, until=70.0)
    assert max(seconds) < PARTITION_UNITS
    assert informed < 60.0


def test_small_clusters_read_a_change_at_once() -> None:
    assert [read_round_seconds(nodes) for nodes in (1, 64, 180)] == [0.0, 0.0, 0.0]
    read_slot = ReadSlot(lambda: 1.0)
    assert read_slot.seconds_until_read(64, now=5.0) == 0.0


def test_member_row_fits_budgeted_bytes() -> None:
    members = [
        Member(
            node_index=node_index,
            instance_id=f"i-{node_index:017x}",
            address=f"10.255.255.{node_index % 256}",
            node_type="worker",
            host_key=f"ssh-ed25519 {'A' * 68}",
        )
        for node_index in range(1, MAX_CLUSTER_NODES + 1)
    ]
    assert len(members_to_json(members)) <= MAX_CLUSTER_NODES * MEMBER_BYTES


def test_agents_of_a_large_cluster_read_a_change_in_turns(cluster: SimulatedCluster, calls: Counter[str]) -> None:
    nodes = launch_nodes(cluster, workers=1)
    worker = nodes[1]
    first = Membership(generation=1, desired_nodes=MAX_CLUSTER_NODES, members=())
    assert cluster.table.replace_membership(cluster.table.read_stored(), first)
    worker.agent.run_pass()
    changed = Membership(generation=2, desired_nodes=MAX_CLUSTER_NODES, members=())
    assert cluster.table.replace_membership(cluster.table.read_stored(), changed)
    cluster.clock.now += 50.0
    calls.clear()
    wait = worker.agent.run_pass()
    assert calls["GetItem"] == 1
    assert 1.0 < wait <= read_round_seconds(MAX_CLUSTER_NODES)
    cluster.clock.now += wait
    worker.agent.run_pass()
    assert calls["GetItem"] == 3
    worker.agent.run_pass()
    assert calls["GetItem"] == 4
