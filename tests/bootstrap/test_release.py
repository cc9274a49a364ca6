"""Test that every node records its release in the table, and that an earlier master or reader does without."""

from dataclasses import replace
from pathlib import Path

import pytest

from bootstrap.agent_service import own_release
from bootstrap.cluster.node_record_writer import NodeRecordWriter
from bootstrap.cluster.record_validation import RecordError, check_release
from bootstrap.contract import VERSION
from bootstrap.idle.report import IdleReporter
from tests.bootstrap.simulated_cluster import SimulatedCluster

OLD, NEW = "0.1.0:0123456789ab", "0.2.0:cdef01234567"


def releases(cluster: SimulatedCluster) -> dict[int, str]:
    return {member.node_index: member.release for member in cluster.table.read_membership().members}


def test_membership_names_each_nodes_release(cluster: SimulatedCluster) -> None:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=2)
    nodes = [
        cluster.boot_node("master", release=NEW),
        cluster.boot_node("worker", release=OLD),
        cluster.boot_node("worker", 1),
    ]
    cluster.run(nodes, until=lambda: len(releases(cluster)) == 3)
    found = releases(cluster)
    assert (found[1], sorted(found.values())) == (NEW, ["", OLD, NEW])


def test_changed_release_alone_causes_no_new_membership(cluster: SimulatedCluster) -> None:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=1)
    cluster.run([cluster.boot_node("master", release=NEW)], until=lambda: releases(cluster) == {1: NEW})
    generation = cluster.table.read_membership().generation
    master = cluster.boot_node("master", release=OLD)
    for _ in range(5):
        master.agent.run_pass()
        cluster.clock.now += 20.0
    assert (cluster.table.read_membership().generation, releases(cluster)) == (generation, {1: NEW})
    cluster.run([master, cluster.boot_node("worker", release=OLD)], until=lambda: releases(cluster) == {1: OLD, 2: OLD})


def test_membership_without_releases_causes_no_writes(cluster: SimulatedCluster) -> None:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=0)
    node = cluster.boot_node("master", release=NEW)
    cluster.run([node], until=lambda: releases(cluster) == {1: NEW})
    membership = cluster.table.read_membership()
    earlier = replace(membership, members=tuple(replace(member, release="") for member in membership.members))
    [record] = cluster.table.read_nodes([f"{node.agent._config.master_role_id}:{node.instance_id}"]).values()
    report = IdleReporter(lambda: "", monotonic=cluster.clock, sequence_number=lambda: 1)
    writer = NodeRecordWriter(report=report, monotonic=lambda: 1000.0)
    writer._published = record
    assert record.release == NEW
    assert not writer.is_due(record, earlier)
    assert writer.is_due(replace(record, release=OLD), earlier)


def test_release_is_named_by_version_and_bundle() -> None:
    assert own_release(Path("/opt/deeplearning/releases", "ab" * 32)) == f"{VERSION}:abababababab"
    assert own_release(Path("/home/me/checkout")) == ""


@pytest.mark.parametrize("value", ["0.1.0", "0.1.0:0123456789AB", f"{OLD}\n", "-o x:0123456789ab", 1, None])
def test_release_in_a_record_must_be_version_and_hash(value: object) -> None:
    assert check_release(OLD) == OLD
    with pytest.raises(RecordError, match=r"^release must be VERSION:HASH, got "):
        check_release(value)
