"""Check that a node that its group ends waits for its ranks to save, and never longer than they may take."""

import fcntl
import os
import pwd
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from bootstrap.cluster.termination_notice import (
    DROP_TIMEOUT_S,
    MEMBERSHIP_PROPAGATION_S,
    SIGTERM_DELIVERY_S,
    SPOT_NOTICE_S,
    TerminationNotice,
)
from bootstrap.contract import DRAIN_HOOK_HEARTBEAT_TIMEOUT_S, MAX_GRACE_S
from bootstrap.files.paths import under_root
from launcher.job_directories import write_grace
from launcher.paths import JOBS_DIR
from tests.bootstrap.booted_cluster import form_cluster, run_seconds
from tests.bootstrap.simulated_cluster import SimulatedCluster
from tests.bootstrap.simulated_node import SimulatedNode

TERMINATING = TerminationNotice(is_terminating=True)
HOME = pwd.getpwuid(os.getuid()).pw_dir
MAX_HEARTBEAT_TIMEOUTS = 100
"""Heartbeat timeouts after which AWS ends the wait in any case (Amazon EC2 Auto Scaling User Guide, "Considerations and
limitations for lifecycle hooks")."""
SPARSE_S = 5
"""Seconds between passes in the middle of a long wait, to run fewer."""


@contextmanager
def ranks(node: SimulatedNode, *, grace_s: float) -> Iterator[None]:
    """Hold the lock of a job on a node as its runner does while ranks run."""
    directory = under_root(node.root, f"{HOME}/{JOBS_DIR}/20261123-100000-000aaaa")
    directory.mkdir(parents=True, exist_ok=True)
    lock = os.open(directory / ".a-node.lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        write_grace(lock, grace_s)
        yield
    finally:
        os.close(lock)


def completes_after(cluster: SimulatedCluster, nodes: list[SimulatedNode], node: SimulatedNode, *, most: float) -> int:
    """Return the seconds until a node completes its hook, which its heartbeats must have kept alive."""
    node_id = node.instance_id
    seconds = run_seconds(cluster, nodes, int(most), until=lambda: node_id in cluster.completed_hooks)
    assert node_id in cluster.completed_hooks, f"not completed within {most} s"
    assert hook_stays(cluster, node)
    return seconds


def hook_stays(cluster: SimulatedCluster, node: SimulatedNode) -> bool:
    """Return True if the hook's timeout has never passed between two heartbeats."""
    times = [at for instance_id, at in cluster.heartbeats if instance_id == node.instance_id]
    return (
        max(after - before for before, after in pairwise([*times, cluster.clock.now])) < DRAIN_HOOK_HEARTBEAT_TIMEOUT_S
    )


def drop(cluster: SimulatedCluster, nodes: list[SimulatedNode], node: SimulatedNode) -> None:
    """Run the nodes until the membership no longer counts on a node."""
    left = run_seconds(
        cluster,
        nodes,
        20,
        until=lambda: node.instance_id not in {m.instance_id for m in cluster.table.read_membership().active_members},
    )
    assert left < 20


def test_node_ends_as_soon_as_its_ranks_have_ended(cluster: SimulatedCluster) -> None:
    nodes = form_cluster(cluster)
    with ranks(nodes[1], grace_s=300):
        nodes[1].metadata.notice = TERMINATING
        run_seconds(cluster, nodes, 150, every_s=SPARSE_S)
        assert cluster.completed_hooks == []
        assert hook_stays(cluster, nodes[1])
    assert completes_after(cluster, nodes, nodes[1], most=5) <= 2


@pytest.mark.parametrize(("grace_s", "allowed_s"), [(60, 60), (10**6, MAX_GRACE_S)])
def test_ranks_delay_the_end_by_their_grace_at_most(cluster: SimulatedCluster, grace_s: int, allowed_s: int) -> None:
    nodes = form_cluster(cluster)
    with ranks(nodes[1], grace_s=grace_s):
        nodes[1].metadata.notice = TERMINATING
        nodes[1].agent.run_pass()
        drop(cluster, nodes, nodes[1])
        run_seconds(cluster, nodes[1:2], allowed_s, every_s=SPARSE_S)
        assert cluster.completed_hooks == []
        assert completes_after(cluster, nodes[1:2], nodes[1], most=SIGTERM_DELIVERY_S + 15) >= SIGTERM_DELIVERY_S - 5


def test_ranks_of_a_lost_master_may_save(cluster: SimulatedCluster) -> None:
    _, terminating, other = form_cluster(cluster)  # and the master is dead from now on
    with ranks(terminating, grace_s=120):
        terminating.metadata.notice = TERMINATING
        longest = int(DROP_TIMEOUT_S + SIGTERM_DELIVERY_S + 120)
        run_seconds(cluster, [terminating, other], longest - 5, every_s=SPARSE_S)
        assert completes_after(cluster, [terminating, other], terminating, most=10) >= 5


def test_nodes_that_end_together_wait_for_their_own_ranks(cluster: SimulatedCluster) -> None:
    nodes = form_cluster(cluster)
    with ExitStack() as saving:
        for node in nodes:
            node.metadata.notice = TERMINATING
        on_master = saving.enter_context(ExitStack())
        on_master.enter_context(ranks(nodes[0], grace_s=300))
        saving.enter_context(ranks(nodes[2], grace_s=300))
        run_seconds(cluster, nodes, 100, every_s=SPARSE_S)
        assert cluster.completed_hooks == [nodes[1].instance_id]
        on_master.close()
        run_seconds(cluster, nodes, 3)
        assert cluster.completed_hooks == [nodes[1].instance_id, nodes[0].instance_id]
    run_seconds(cluster, nodes, 3)
    assert cluster.completed_hooks == [nodes[1].instance_id, nodes[0].instance_id, nodes[2].instance_id]


def test_interrupted_node_is_not_held_beyond_its_two_minutes(cluster: SimulatedCluster) -> None:
    nodes = form_cluster(cluster)
    with ranks(nodes[1], grace_s=600):
        nodes[1].metadata.notice = TerminationNotice(is_interruption_pending=True, is_terminating=True)
        run_seconds(cluster, nodes, int(SPOT_NOTICE_S) - 5, every_s=SPARSE_S)
        assert cluster.completed_hooks == []
        assert completes_after(cluster, nodes, nodes[1], most=10) >= 5


def test_node_that_may_be_terminated_sends_no_more_heartbeats(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = form_cluster(cluster)

    def refuse(**_: str) -> None:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "denied"}}, "CompleteLifecycleAction")

    monkeypatch.setattr(cluster.clients.autoscaling, "complete_lifecycle_action", refuse)
    nodes[1].metadata.notice = TERMINATING
    run_seconds(cluster, nodes, int(MEMBERSHIP_PROPAGATION_S + DROP_TIMEOUT_S), every_s=SPARSE_S)
    heartbeats = len(cluster.heartbeats)
    assert heartbeats
    run_seconds(cluster, nodes, 60, every_s=SPARSE_S)
    assert len(cluster.heartbeats) == heartbeats


def test_slow_passes_keep_the_hook_alive(cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    terminating = form_cluster(cluster)[1]

    def time_out(*_: object) -> None:
        cluster.clock.now += 18.0  # three attempts of bootstrap.aws.clients.SHORT
        raise EndpointConnectionError(endpoint_url="https://dynamodb")

    terminating.metadata.notice = TERMINATING
    monkeypatch.setattr(cluster.clients.dynamodb, "_make_api_call", time_out)
    with ranks(terminating, grace_s=300):
        run_seconds(cluster, [terminating], 15)
        assert hook_stays(cluster, terminating)
    assert cluster.completed_hooks == []


def test_master_that_waits_for_ranks_calls_aws_as_rarely_as_before(
    cluster: SimulatedCluster, calls: Counter[str]
) -> None:
    nodes = form_cluster(cluster)
    master, worker, _ = nodes
    with ranks(master, grace_s=600), ranks(worker, grace_s=600):
        master.metadata.notice = TERMINATING
        run_seconds(cluster, nodes, int(DROP_TIMEOUT_S) + 5, every_s=SPARSE_S)
        calls.clear()
        run_seconds(cluster, [master], 60)
        assert calls["DescribeAutoScalingGroups"] <= 60 / 15 + 1
        # And it still drops other nodes in time.
        worker.metadata.notice = TERMINATING
        worker.agent.run_pass()
        drop(cluster, nodes, worker)
        assert cluster.completed_hooks == []


def test_aws_grants_more_than_the_longest_wait() -> None:
    longest = DROP_TIMEOUT_S + SIGTERM_DELIVERY_S + MAX_GRACE_S
    assert longest < MAX_HEARTBEAT_TIMEOUTS * DRAIN_HOOK_HEARTBEAT_TIMEOUT_S
