"""Test the cache's answers between two calls to EC2."""

from collections.abc import Collection

import pytest

from bootstrap.aws.clients import Clients
from bootstrap.cluster.discovery import Instance
from bootstrap.cluster.ec2_cache import ABSENT_ANSWERS, REFRESH_PASSES, Ec2Cache


class Ec2:
    """EC2's answers, and the calls that it received."""

    def __init__(self, *running: str) -> None:
        self.instances = {name: ec2_instance(name) for name in running}
        self.asked: list[list[str]] = []

    def describe(self, _client: object, names: Collection[str]) -> dict[str, Instance]:
        self.asked.append(sorted(names))
        return {name: self.instances[name] for name in names if name in self.instances}


def ec2_instance(name: str, state: str = "running", *, in_group: bool = True) -> Instance:
    return Instance(instance_id=name, state=state, address="10.0.0.1", in_group=in_group)


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Ec2:
    made = Ec2("i-1", "i-2")
    monkeypatch.setattr("bootstrap.cluster.ec2_cache.describe_instances", made.describe)
    return made


@pytest.fixture
def ec2_cache(clients: Clients) -> Ec2Cache:
    return Ec2Cache(clients.ec2)


BOTH = ("i-1", "i-2")


def test_stable_cluster_is_queried_periodically(ec2: Ec2, ec2_cache: Ec2Cache) -> None:
    for _ in range(1 + 2 * REFRESH_PASSES):
        assert ec2_cache.describe(group_instances=BOTH, members=BOTH) == ec2.instances
    assert ec2.asked == [[*BOTH]] * 3


def test_crash_of_a_detached_instance_is_detected_in_bounded_passes(ec2: Ec2, ec2_cache: Ec2Cache) -> None:
    ec2_cache.describe(group_instances=BOTH, members=BOTH)
    ec2.instances["i-2"] = ec2_instance("i-2", "terminated")
    states = [ec2_cache.describe(group_instances=BOTH, members=BOTH)["i-2"].state for _ in range(REFRESH_PASSES)]
    assert states == ["running"] * (REFRESH_PASSES - 1) + ["terminated"]


@pytest.mark.parametrize("state", ["pending", "running"])
def test_new_instance_is_queried_immediately(ec2: Ec2, ec2_cache: Ec2Cache, state: str) -> None:
    ec2_cache.describe(group_instances=["i-1"], members=["i-1"])
    ec2.instances["i-2"] = ec2_instance("i-2", state)
    assert ec2_cache.describe(group_instances=BOTH, members=["i-1"]) == ec2.instances
    assert ec2.asked == [["i-1"], [*BOTH]]


@pytest.mark.parametrize("state", ["stopped", "shutting-down", "terminated"])
def test_stopped_or_terminated_instance_is_queried_every_pass(ec2: Ec2, ec2_cache: Ec2Cache, state: str) -> None:
    ec2.instances["i-2"] = ec2_instance("i-2", state)
    for _ in range(4):
        ec2_cache.describe(group_instances=BOTH, members=BOTH)
    assert len(ec2.asked) == 4


def test_member_without_a_group_is_queried_every_pass(ec2: Ec2, ec2_cache: Ec2Cache) -> None:
    for _ in range(4):
        ec2_cache.describe(group_instances=["i-1"], members=BOTH)
    assert ec2.asked == [[*BOTH]] * 4


@pytest.mark.parametrize(
    ("instance", "has_left"),
    [
        (ec2_instance("i-2"), False),
        (ec2_instance("i-2", "stopped"), False),
        (ec2_instance("i-2", "shutting-down"), False),
        (ec2_instance("i-2", "terminated"), True),
        (ec2_instance("i-2", in_group=False), True),
    ],
)
def test_terminated_or_detached_instance_counts_as_gone(
    ec2: Ec2, ec2_cache: Ec2Cache, instance: Instance, has_left: bool
) -> None:
    ec2.instances["i-2"] = instance
    ec2_cache.describe(group_instances=["i-1"], members=BOTH)
    assert ec2_cache.has_left("i-2") == has_left


def test_instance_unknown_to_ec2_counts_as_gone_after_consecutive_misses(ec2: Ec2, ec2_cache: Ec2Cache) -> None:
    stray = ec2.instances.pop("i-2")
    for _ in range(ABSENT_ANSWERS - 1):
        ec2_cache.describe(group_instances=["i-1"], members=BOTH)
        assert not ec2_cache.has_left("i-2")
    ec2.instances["i-2"] = stray
    ec2_cache.describe(group_instances=["i-1"], members=BOTH)
    del ec2.instances["i-2"]
    for _ in range(ABSENT_ANSWERS - 1):
        ec2_cache.describe(group_instances=["i-1"], members=BOTH)
        assert not ec2_cache.has_left("i-2")
    ec2_cache.describe(group_instances=["i-1"], members=BOTH)
    assert ec2_cache.has_left("i-2")
