"""Test that differences between the nodes' views of their cluster are reported."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from bootstrap.contract import MARKER_BEGIN, MARKER_END
from local.chaos.membership_check import (
    ExpectedMember,
    NodeView,
    Observation,
    differences,
    parse_hosts,
    parse_known_hosts,
    parse_variables,
)

MASTER = ExpectedMember(instance_id="i-1", address="10.0.0.1", node_type="master", host_key="key of i-1")
WORKER = ExpectedMember(instance_id="i-2", address="10.0.1.2", node_type="worker", host_key="key of i-2")
INSTANCES = (MASTER, WORKER)
RIGHT = NodeView(
    node_index=1,
    generation=4,
    members=((1, "i-1"), (2, "i-2")),
    hosts={
        "deeplearning-master": "10.0.0.1",
        "deeplearning-worker1": "10.0.0.1",
        "deeplearning-worker2": "10.0.1.2",
    },
    workers=("deeplearning-worker1", "deeplearning-worker2"),
    known_hosts={
        "deeplearning-master": "key of i-1",
        "deeplearning-worker1": "key of i-1",
        "10.0.0.1": "key of i-1",
        "deeplearning-worker2": "key of i-2",
        "10.0.1.2": "key of i-2",
    },
    workers_count="2",
)
VIEWS: Mapping[str, NodeView | str] = {"i-1": RIGHT, "i-2": replace(RIGHT, node_index=2)}


def test_equal_views_have_no_differences() -> None:
    previous = Observation(generation=3, instances={1: "i-1", 2: "i-7"})
    assert differences(desired_nodes=2, instances=INSTANCES, views=VIEWS, previous=previous) == []


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"members": ((1, "i-1"),)}, "i-2: lacks i-2"),
        ({"members": ((1, "i-1"), (2, "i-2"), (3, "i-9"))}, "i-2: still has i-9 with index 3"),
        ({"members": ((1, "i-1"), (2, "i-2"), (2, "i-1"))}, "i-2: has several members with index 2"),
        ({"members": ((1, "i-1"), (2, "i-2"), (3, "i-2"))}, "i-2: has i-2 with several indexes"),
        ({"members": ((2, "i-1"), (1, "i-2"))}, "i-2: has i-2, a worker, with index 1"),
        ({"members": ((1, "i-1"), (3, "i-2"))}, "membership differs: i-1 has 1=i-1 2=i-2, i-2 has 1=i-1 3=i-2"),
        ({"node_index": 1}, "i-2: says that its index is 1, where it has i-1"),
        ({"generation": 5}, "generation differs: i-1 has 4, i-2 has 5"),
        (
            {"hosts": {**RIGHT.hosts, "deeplearning-worker2": "10.0.1.9"}},
            "i-2: the hosts file has 10.0.1.9 for deeplearning-worker2, must have 10.0.1.2",
        ),
        (
            {"hosts": {**RIGHT.hosts, "deeplearning-worker3": "10.0.1.9"}},
            "i-2: the hosts file has 10.0.1.9 for deeplearning-worker3, must have nothing",
        ),
        (
            {"known_hosts": {**RIGHT.known_hosts, "10.0.0.1": "an old key"}},
            "i-2: the known hosts has an old key for 10.0.0.1, must have key of i-1",
        ),
        (
            {"workers": ("deeplearning-worker2", "deeplearning-worker1")},
            "i-2: the workers file has deeplearning-worker2 deeplearning-worker1, "
            "must have deeplearning-worker1 deeplearning-worker2",
        ),
        ({"workers_count": "3"}, "i-2: processes see 3 workers, must see 2"),
    ],
)
def test_difference_of_one_node_is_reported(change: dict[str, Any], line: str) -> None:
    views = {**VIEWS, "i-2": replace(RIGHT, **({"node_index": 2} | change))}
    assert line in differences(desired_nodes=2, instances=INSTANCES, views=views)


def test_silent_or_missing_node_is_reported() -> None:
    assert differences(desired_nodes=3, instances=INSTANCES, views={"i-1": RIGHT, "i-2": "does not run"}) == [
        "the groups want 3 nodes, 2 are in service",
        "i-2: does not run",
    ]
    assert differences(desired_nodes=2, instances=INSTANCES, views={"i-1": RIGHT}) == ["i-2: no report"]


def test_moved_survivor_and_older_generation_are_reported() -> None:
    previous = Observation(generation=9, instances={2: "i-1", 3: "i-8"})
    assert differences(desired_nodes=2, instances=INSTANCES, views=VIEWS, previous=previous) == [
        "i-1 had index 2 and now has 1",
        "generation went back from 9 to 4",
    ]


def test_only_the_agents_block_of_the_hosts_file_is_read() -> None:
    own = f"{MARKER_BEGIN}\n10.0.0.1 one two\n10.0.0.2 two\n{MARKER_END}\n"
    assert parse_hosts(f"127.0.0.1 localhost\n{own}10.0.0.3 three\n") == {"one": "10.0.0.1", "two": "10.0.0.1"}
    assert parse_hosts("127.0.0.1 localhost\n") == {}


def test_several_keys_for_a_name_are_all_seen() -> None:
    text = f"{MARKER_BEGIN}\none,10.0.0.1 ssh-ed25519 A\none ssh-ed25519 B\n{MARKER_END}\n"
    assert parse_known_hosts(text) == {"one": "ssh-ed25519 A, ssh-ed25519 B", "10.0.0.1": "ssh-ed25519 A"}


def test_variables_are_read_from_the_agents_block() -> None:
    assert parse_variables(f"A=1\n{MARKER_BEGIN}\nB=2\n{MARKER_END}\n") == {"B": "2"}
