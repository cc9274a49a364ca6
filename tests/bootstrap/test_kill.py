"""Kill the agent before each of its writes: no file is half written, no index is lost, and the next agent recovers."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bootstrap import contract
from bootstrap.contract import MASTER, NODE_TYPES, WORKER, NodeType
from bootstrap.files.paths import under_root
from tests.bootstrap.booted_cluster import all_ready, hosts_file
from tests.bootstrap.simulated_cluster import SimulatedCluster
from tests.bootstrap.simulated_node import TABLE, SimulatedNode

FILE_WRITES = ((Path, "replace"), (Path, "rename"), (Path, "touch"), (Path, "unlink"), (shutil, "rmtree"))
ACTIONS = ("make_key", "set_environment", "reload_sshd")
TABLE_WRITES = ("PutItem", "TransactWriteItems")
WORKERS = "deeplearning-worker1\ndeeplearning-worker2\n"


class KilledError(BaseException):
    """The agent was killed; like SIGKILL, this cannot be handled."""


class Writes:
    """Lets a number of writes pass, and kills the agent before the next."""

    def __init__(self, cluster: SimulatedCluster, *, allowed: int) -> None:
        self._cluster = cluster
        self._allowed = allowed
        self.passed: list[str] = []

    @contextmanager
    def watched(self, node: SimulatedNode) -> Iterator[None]:
        aws = self._cluster.clients
        with pytest.MonkeyPatch.context() as patch:
            for owner, name in (*FILE_WRITES, *((node.system, action) for action in ACTIONS)):
                patch.setattr(owner, name, self._counted(name, getattr(owner, name)))
            patch.setattr(
                aws.cloudformation, "signal_resource", self._counted("signal", aws.cloudformation.signal_resource)
            )
            for name in TABLE_WRITES:
                aws.dynamodb.meta.events.register(f"before-call.dynamodb.{name}", self._count_call)
            try:
                yield
            finally:
                for name in TABLE_WRITES:
                    aws.dynamodb.meta.events.unregister(f"before-call.dynamodb.{name}", self._count_call)

    def _counted(self, name: str, write: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            if name not in ("unlink", "rmtree") or args[0].exists():
                self._count(name)
            return write(*args, **kwargs)

        return counted

    def _count_call(self, **call: Any) -> None:
        self._count(call["model"].name)

    def _count(self, name: str) -> None:
        if len(self.passed) == self._allowed:
            raise KilledError
        self.passed.append(name)


def form(cluster: SimulatedCluster, nodes: list[SimulatedNode], *, victim: SimulatedNode, writes: Writes) -> bool:
    """Let the two form a cluster; return True if the victim survived."""
    for _ in range(20):
        for node in nodes:
            if node is not victim:
                node.agent.run_pass()
                continue
            try:
                with writes.watched(victim):
                    victim.agent.run_pass()
            except KilledError:
                return False
        if all_ready(nodes)():
            return True
        cluster.clock.now += 2.0
    raise AssertionError("two nodes became no cluster")


def check_files_are_whole(victim: SimulatedNode, nodes: list[SimulatedNode]) -> None:
    """Check that each file is in its old or its new state, and nothing in between."""
    one = hosts_file(nodes[:1])
    assert victim.text(contract.HOSTS_FILE) in ("127.0.0.1 localhost\n", one, hosts_file(nodes))
    workers = under_root(victim.root, contract.WORKERS_FILE)
    assert not workers.exists() or workers.read_text() in (WORKERS[: len(WORKERS) // 2], WORKERS)
    key = under_root(victim.root, contract.CLUSTER_KEY_DIR)
    assert not key.exists() or len([*key.iterdir()]) == 2


def check_all_is_right(cluster: SimulatedCluster, nodes: list[SimulatedNode]) -> None:
    assert cluster.by_index() == {node_index: node.instance_id for node_index, node in enumerate(nodes, start=1)}
    master = nodes[0]
    public = master.text(f"{contract.CLUSTER_KEY_FILE}.pub").rsplit(" ", 1)[0]
    for node in nodes:
        assert node.text(contract.HOSTS_FILE) == hosts_file(nodes)
        assert node.text(contract.WORKERS_FILE) == WORKERS
        [keys] = under_root(node.root, contract.AUTHORIZED_KEYS_DIR).iterdir()
        assert keys.read_text() == f'from="{master.address}" {public} deeplearning-cdk\n'
        litter = ("*.pending", "*deeplearning-new", ".cluster-key.new")
        assert not [path for pattern in litter for path in node.root.rglob(pattern)]
    # A signal that was sent but not recorded is sent again: CloudFormation counts a UniqueId once.
    assert {signal[1:] for signal in cluster.signals} == {("SUCCESS", node.instance_id) for node in nodes}


def forget(cluster: SimulatedCluster, nodes: list[SimulatedNode]) -> None:
    """Start on an empty disk."""
    for node in nodes:
        shutil.rmtree(node.root)
    cluster.signals.clear()
    for item in cluster.clients.dynamodb.scan(TableName=TABLE)["Items"]:
        cluster.clients.dynamodb.delete_item(TableName=TABLE, Key={contract.TABLE_KEY: item[contract.TABLE_KEY]})


def with_key_of_its_image(node: SimulatedNode) -> SimulatedNode:
    """Set up a node whose image was made from a master, which left a key in it."""
    file = under_root(node.root, contract.CLUSTER_KEY_FILE)
    file.parent.mkdir(parents=True)
    file.write_text("private half\n")
    file.with_name(f"{file.name}.pub").write_text("ssh-ed25519 AAAAold i-old\n")
    return node


def is_formed(victim: SimulatedNode, nodes: list[SimulatedNode]) -> bool:
    return all_ready(nodes)() and victim.text(contract.HOSTS_FILE) == hosts_file(nodes)


NODE_WRITES = {"rmtree", "PutItem", "replace", "touch", "unlink", "set_environment", "reload_sshd", "signal"}
MASTER_WRITES = {*NODE_WRITES, "make_key", "rename", "TransactWriteItems"}


@pytest.mark.parametrize(("victim", "kinds"), [(MASTER, MASTER_WRITES), (WORKER, NODE_WRITES)])
def test_agent_killed_before_any_write_leaves_complete_files_and_its_index(
    cluster: SimulatedCluster, victim: NodeType, kinds: set[str]
) -> None:
    cluster.add_group(MASTER, size=1)
    cluster.add_group(WORKER, size=1)
    place_of = NODE_TYPES.index(victim)
    lived = False
    allowed = 0
    while not lived:
        nodes = [cluster.boot_node(node_type) for node_type in NODE_TYPES]
        dead, writes = with_key_of_its_image(nodes[place_of]), Writes(cluster, allowed=allowed)
        lived = form(cluster, nodes, victim=dead, writes=writes)
        check_files_are_whole(dead, nodes)
        nodes[place_of] = next_agent = cluster.boot_node(victim)
        cluster.run(nodes, until=partial(is_formed, next_agent, nodes))
        cluster.clock.now += 20.0
        for node in nodes:
            node.agent.run_pass()
        check_all_is_right(cluster, nodes)
        assert {"set-environment", "reload-sshd"} <= {*dead.system.calls, *next_agent.system.calls}
        forget(cluster, nodes)
        allowed += 1
    # The agent was killed before each kind of write that it makes.
    assert set(writes.passed) == kinds
    assert allowed == len(writes.passed) + 1
