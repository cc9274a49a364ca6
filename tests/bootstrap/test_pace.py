"""How often a cluster in which nothing changes asks AWS: no more with many nodes than with few."""

from collections import Counter

import pytest

from bootstrap.imds import Outlook
from bootstrap.pace import EAGER_FOR_S, EAGER_S, STEADY_S, Pace
from tests.bootstrap.cluster import CLUSTER, Cluster, TestNode
from tests.bootstrap.forming import all_ready, booted

TABLE_READS = ("GetItem", "BatchGetItem")
TABLE_WRITES = ("PutItem", "TransactWriteItems")


class Rhythm:
    """Agents that make their passes when they are due, and what each of them asks for."""

    def __init__(self, cluster: Cluster, calls: Counter[str]) -> None:
        self._cluster = cluster
        self._calls = calls
        self._due: dict[str, float] = {}

    def second(self, nodes: list[TestNode]) -> dict[str, Counter[str]]:
        self._cluster.clock.now += 1.0
        spent = {node.instance_id: Counter[str]() for node in nodes}
        for node in nodes:
            if self._cluster.clock.now >= self._due.get(node.instance_id, 0.0):
                self._calls.clear()
                self._due[node.instance_id] = self._cluster.clock.now + node.agent.step()
                spent[node.instance_id].update(self._calls)
        return spent

    def minute(self, nodes: list[TestNode]) -> dict[str, Counter[str]]:
        total = {node.instance_id: Counter[str]() for node in nodes}
        for _ in range(60):
            for name, spent in self.second(nodes).items():
                total[name].update(spent)
        return total


@pytest.fixture
def rhythm(cluster: Cluster, calls: Counter[str]) -> Rhythm:
    return Rhythm(cluster, calls)


def control_calls(spent: dict[str, Counter[str]]) -> int:
    total = sum(spent.values(), Counter[str]())
    return sum(count for name, count in total.items() if name not in TABLE_READS + TABLE_WRITES)


def table_reads(spent: Counter[str]) -> int:
    return sum(spent[name] for name in TABLE_READS)


@pytest.mark.parametrize("size", [2, 8])
def test_steady_cluster_of_any_size_asks_aws_little(cluster: Cluster, rhythm: Rhythm, size: int) -> None:
    nodes = booted(cluster, workers=size - 1)
    cluster.run(nodes, until=all_ready(nodes))
    rhythm.minute(nodes)
    for _ in range(2):
        spent = rhythm.minute(nodes)
        assert 4 <= control_calls(spent) <= 6
        assert all(2 <= table_reads(each) <= 12 for each in spent.values())
        assert not any(each[name] for each in spent.values() for name in TABLE_WRITES)
        # Only the master talks to the control plane.
        assert control_calls({node.instance_id: spent[node.instance_id] for node in nodes[1:]}) == 0


def test_instance_that_never_joins_does_not_keep_the_calls_up(cluster: Cluster, rhythm: Rhythm) -> None:
    nodes = booted(cluster)[:2]
    eager = rhythm.minute(nodes)
    assert control_calls(eager) > 20
    for _ in range(5):
        rhythm.minute(nodes)
    spent = rhythm.minute(nodes)
    assert not cluster.signals
    assert control_calls(spent) <= 6
    assert all(table_reads(each) <= 12 for each in spent.values())


def test_instance_that_comes_after_one_that_never_joined_is_awaited_eagerly_again() -> None:
    pace = Pace()
    assert pace.interval(frozenset(), now=0.0) == STEADY_S
    assert pace.interval({"i-1"}, now=10.0) == EAGER_S
    assert pace.interval({"i-1"}, now=10.0 + EAGER_FOR_S - 1) == EAGER_S
    assert pace.interval({"i-1"}, now=10.0 + EAGER_FOR_S) == STEADY_S
    assert pace.interval({"i-1", "i-2"}, now=900.0) == EAGER_S
    assert pace.interval({"i-1", "i-2"}, now=900.0 + EAGER_FOR_S) == STEADY_S
    assert pace.interval(frozenset(), now=2000.0) == STEADY_S
    assert pace.interval({"i-1"}, now=2001.0) == EAGER_S


def test_master_that_is_ready_looks_often_only_while_somebody_arrives(cluster: Cluster) -> None:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=1)
    master = cluster.node("master", settings={"min_nodes": 1})
    cluster.run([master], until=all_ready([master]))
    cluster.clock.now += EAGER_S
    assert master.agent.step() == EAGER_S
    worker = cluster.node("worker", settings={"min_nodes": 1})
    cluster.run([worker, master], until=all_ready([worker]))
    cluster.clock.now += STEADY_S
    assert master.agent.step() == 6.0


def test_node_that_is_not_ready_for_long_does_not_hurry_any_more(cluster: Cluster) -> None:
    worker = booted(cluster)[1]
    assert worker.agent.step() == 1.0
    cluster.clock.now += EAGER_FOR_S
    assert worker.agent.step() == 6.0


def test_newcomer_is_found_within_a_steady_interval_and_then_hurried_along(cluster: Cluster, rhythm: Rhythm) -> None:
    nodes = booted(cluster, workers=1)
    cluster.run(nodes, until=all_ready(nodes))
    rhythm.minute(nodes)
    cluster.clients.autoscaling.set_desired_capacity(AutoScalingGroupName=f"{CLUSTER}-worker", DesiredCapacity=2)
    nodes.append(cluster.replacement("worker", of=nodes))
    for _ in range(int(STEADY_S + EAGER_S)):
        rhythm.second(nodes)
    assert nodes[-1].agent.ready


def test_master_that_only_might_go_is_in_no_hurry_for_long(cluster: Cluster, rhythm: Rhythm) -> None:
    nodes = booted(cluster)
    cluster.run(nodes, until=all_ready(nodes))
    nodes[0].metadata.outlook = Outlook(at_risk=True)
    rhythm.minute(nodes)
    assert control_calls(rhythm.minute(nodes)) <= 10
