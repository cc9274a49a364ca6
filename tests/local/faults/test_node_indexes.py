"""Test which instance a node's name denotes."""

import pytest

from local.errors import LocalError, UsageError
from local.faults.node_indexes import aliases, index_of_alias, newest, resolve

CLUSTERS = {"one": {1: "i-1", 2: "i-2"}, "two": {1: "i-5"}}


@pytest.mark.parametrize(
    ("name", "node_index"),
    [("master", 1), ("deeplearning-master", 1), ("worker1", 1), ("worker12", 12), ("deeplearning-worker3", 3)],
)
def test_node_name_resolves_to_its_index(name: str, node_index: int) -> None:
    assert index_of_alias(name) == node_index


@pytest.mark.parametrize("name", ["worker0", "worker", "node2", "worker2x"])
def test_malformed_node_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"a node is named .*, got '{name}'"):
        index_of_alias(name)


def test_instance_id_means_itself_and_a_name_the_instance_with_its_index() -> None:
    assert resolve("i-0f", {}) == "i-0f"
    assert resolve("worker2", CLUSTERS) == "i-2"


def test_name_of_no_node_or_several_is_refused() -> None:
    with pytest.raises(LocalError, match=r"no node worker7; nodes: master, worker2$"):
        resolve("worker7", CLUSTERS)
    with pytest.raises(LocalError, match="several clusters have a master, give the instance id: i-1, i-5"):
        resolve("master", CLUSTERS)


def test_state_with_the_latest_generation_is_used() -> None:
    assert newest([{"generation": 2}, {"generation": 11}, {"generation": 3}]) == {"generation": 11}
    assert newest([]) is None


def test_instance_is_called_after_its_node_index() -> None:
    assert aliases(CLUSTERS) == {"i-1": "master", "i-2": "worker2", "i-5": "master"}
