"""Test nodes that leave the cluster during a job: every rank can save, and the job restarts without them."""

import asyncio
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from bootstrap.contract import NODE_STATE_FILE
from launcher.detached.unit import LogSink
from launcher.hosts.hostfile import Host
from launcher.job import node_loss
from launcher.job.failure import Failure, FailureCause
from launcher.job.node_loss import NodeStateReader, node_loss_failure, parse_cluster_view, wait_for_node_loss
from tests.bootstrap.identities import instance_id, public_key
from tests.launcher.loopback_cluster import (
    ADDRESSES,
    LoopbackCluster,
    change_constants,
    copy_launcher,
    launcher_lines,
    read_lines,
)

FIRST, SECOND, THIRD = ADDRESSES
OWN_END = "this node is leaving the cluster, which ends the launcher"
SAVE = "trap 'sleep 0.5; echo saved; exit' TERM; echo up; while :; do sleep 0.1; done"


def state(
    *, draining: Sequence[int] = (), node_indexes: Sequence[int] = (1, 2, 3), own: int = 1, moved: int = 0
) -> str:
    """Write the state like the agent: index n is instance n; `moved` is the last one's index instead."""
    members = [
        {
            "node_index": moved if moved and node_index == node_indexes[-1] else node_index,
            "instance_id": instance_id(node_index),
            "address": ADDRESSES[node_index - 1],
            "node_type": "master" if node_index == 1 else "worker",
            "host_key": public_key(node_index),
            "draining": node_index in draining,
        }
        for node_index in node_indexes
    ]
    return json.dumps({"instance_id": instance_id(own), "node_index": own, "generation": 4, "members": members})


HOSTS: dict[Host, str | None] = {
    Host(name=f"deeplearning-worker{node_index}"): instance_id(node_index) for node_index in (1, 2, 3)
}


def node_loss_reason(text: str, hosts: dict[Host, str | None] | None = None) -> str | None:
    found = node_loss_failure(HOSTS if hosts is None else hosts, parse_cluster_view(text))
    return None if found is None else found.reason


@pytest.mark.parametrize(("text", "reason"), [
    (state(), None),
    (state(draining=[3]), "deeplearning-worker3 is draining"),
    (state(node_indexes=[1, 3]), "deeplearning-worker2 was lost"),
    (state(draining=[1]), OWN_END),
])  # fmt: skip
def test_node_leaves_when_the_membership_drops_it(text: str, reason: str | None) -> None:
    assert node_loss_reason(text) == reason


@pytest.mark.parametrize(
    ("text", "cause"),
    [(state(draining=[3]), FailureCause.PREEMPTION), (state(node_indexes=[1, 2]), FailureCause.NODE_LOSS)],
)
def test_node_with_notice_is_preempted_and_a_missing_one_has_failed(text: str, cause: FailureCause) -> None:
    found = node_loss_failure(HOSTS, parse_cluster_view(text))
    assert found is not None
    assert found.cause is cause


def test_notice_for_the_launchers_own_node_is_final() -> None:
    own, other = (node_loss_failure(HOSTS, parse_cluster_view(state(draining=[node_index]))) for node_index in (1, 2))
    assert own is not None
    assert own.permanent
    assert other is not None
    assert not other.permanent


def test_node_that_joins_or_changes_its_index_fails_no_job() -> None:
    two = {host: instance for host, instance in HOSTS.items() if instance != instance_id(2)}
    assert node_loss_reason(state(node_indexes=[1, 2, 3]), two) is None
    assert node_loss_reason(state(node_indexes=[1, 3], moved=2), two) is None


def test_replacement_under_the_same_name_is_another_node() -> None:
    assert node_loss_reason(state(), {Host(name="deeplearning-worker2"): "i-old"}) == "deeplearning-worker2 was lost"


def test_machines_outside_the_cluster_are_not_watched() -> None:
    assert node_loss_reason(state(), {Host(name="10.9.9.9"): None}) is None
    assert node_loss_reason(state(), {Host(name="deeplearning-worker9"): None}) == "deeplearning-worker9 was lost"


def test_unreadable_state_file_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "node.json"
    reader = NodeStateReader(file)
    assert reader.read() is None
    file.write_text(state())
    known = reader.read()
    assert known is not None
    for broken in ("", "[]", '{"members": [{}]}', "{"):
        file.write_text(broken)
        assert reader.read() == known
    file.unlink()
    assert reader.read() == known


# ---- with real ranks ----


@pytest.fixture
def cluster_with_state_file(cluster: LoopbackCluster, tmp_path: Path) -> tuple[LoopbackCluster, Path]:
    """Create a cluster whose launcher reads the agent's state from a file; return both."""
    launcher = copy_launcher(tmp_path / "cluster_with_state_file")
    file, contract = tmp_path / "node.json", launcher.parent / "bootstrap" / "contract.py"
    text = contract.read_text()
    assert text.count(f'"{NODE_STATE_FILE}"') == 1
    contract.write_text(text.replace(f'"{NODE_STATE_FILE}"', repr(str(file))))
    file.write_text(state())
    # The last attempt to reach the nodes takes at most the timeout for a login, also on a busy machine.
    change_constants(launcher, {"job/failure.SHORT_RUN_S": 0.0, "transport/ssh.CONNECT_TIMEOUT_S": 60})
    return dataclasses.replace(cluster, launcher=launcher), file


def replace_file(file: Path, text: str) -> None:
    """Write the state like the agent."""
    fresh = file.with_name("fresh")
    fresh.write_text(text)
    fresh.replace(file)


def test_every_rank_can_save_when_a_node_leaves(cluster_with_state_file: tuple[LoopbackCluster, Path]) -> None:
    cluster, file = cluster_with_state_file
    with cluster.start(SAVE) as launcher:
        read_lines(launcher.stdout, 3)
        replace_file(file, state(draining=[3]))
        stdout, stderr = launcher.communicate(timeout=60)
    assert sorted(stdout.decode().splitlines()) == [f"{host} [0] saved" for host in ADDRESSES]
    assert (launcher.returncode, launcher_lines(stderr)) == (1, [f"launch: {THIRD} is draining"])


def test_job_restarts_without_the_node_that_leaves(cluster_with_state_file: tuple[LoopbackCluster, Path]) -> None:
    cluster, file = cluster_with_state_file
    options = ("--max-restarts", "1", "--min-nodes", "2", "--rejoin-timeout", "0")
    job = f"[ $TORCHELASTIC_RESTART_COUNT = 0 ] || exec echo $RANK of $WORLD_SIZE; {SAVE}"
    with cluster.start(*options, job) as launcher:
        read_lines(launcher.stdout, 3)
        hosts = cluster.write_hosts_file(ADDRESSES)
        replace_file(hosts, f"{FIRST}\n{THIRD}\n")
        replace_file(file, state(draining=[2]))
        stdout, stderr = launcher.communicate(timeout=60)
    assert launcher.returncode == 0
    # It answered until its end, so it had not crashed.
    assert launcher_lines(stderr)[1:] == [f"launch: restart (not counted) on 2 of 3 nodes: {FIRST}, {THIRD}"]
    saved = [f"{host} [0] saved" for host in ADDRESSES]
    assert sorted(stdout.decode().splitlines()) == sorted([*saved, f"{FIRST} [0] 0 of 2", f"{THIRD} [0] 1 of 2"])


def test_notice_for_the_launchers_own_node_ends_the_job(cluster_with_state_file: tuple[LoopbackCluster, Path]) -> None:
    cluster, file = cluster_with_state_file
    with cluster.start("--max-restarts", "9", SAVE) as launcher:
        read_lines(launcher.stdout, 3)
        replace_file(file, state(draining=[1]))
        stdout, stderr = launcher.communicate(timeout=60)
    assert stdout.count(b"saved") == 3
    assert (launcher.returncode, launcher_lines(stderr)) == (1, [f"launch: {OWN_END}"])


@pytest.mark.parametrize(
    ("code", "after", "cause"),
    [
        (1, state(node_indexes=[1, 2]), FailureCause.NODE_LOSS),
        (1, state(draining=[1]), FailureCause.NODE_LOSS),
        (1, state(), FailureCause.PROCESS_EXIT),
        (143, state(), FailureCause.NODE_LOSS),
    ],
)
def test_failure_on_a_leaving_node_does_not_end_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, code: int, after: str, cause: FailureCause
) -> None:
    """The runner of a node that is being lost still answers, and reports the rank's end."""
    monkeypatch.setattr(node_loss, "NODE_LOSS_TIMEOUT_S", 0.2 if cause is FailureCause.PROCESS_EXIT else 60.0)
    monkeypatch.setattr(node_loss, "POLL_S", 0.01)
    file = tmp_path / "node.json"
    file.write_text(state())
    failure = Failure(exit_code=code, reason="rank 2 ended", cause=FailureCause.PROCESS_EXIT, instances=HOSTS)

    async def watch() -> Failure:
        log = LogSink(tmp_path)
        watching = asyncio.ensure_future(wait_for_node_loss(failure, log, reader=NodeStateReader(file)))
        await asyncio.sleep(0.05)
        (tmp_path / "new").write_text(after)
        (tmp_path / "new").replace(file)
        return await watching

    assert asyncio.run(watch()).cause is cause
