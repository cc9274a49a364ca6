"""Form a cluster of a master and its workers, let time pass, and render its expected hosts file."""

from collections.abc import Callable
from itertools import pairwise

from bootstrap.contract import DRAIN_HOOK_HEARTBEAT_TIMEOUT_S
from tests.bootstrap.simulated_cluster import SimulatedCluster
from tests.bootstrap.simulated_node import SimulatedNode


def launch_nodes(cluster: SimulatedCluster, *, workers: int = 2) -> list[SimulatedNode]:
    """Launch a master and its workers, whose agents have not run yet."""
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=workers)
    return [cluster.boot_node("master"), *(cluster.boot_node("worker", number) for number in range(workers))]


def all_ready(nodes: list[SimulatedNode]) -> Callable[[], bool]:
    """Return a function that tells whether every agent has signaled that its node is ready."""
    return lambda: all(node.agent.is_signal_settled for node in nodes)


def form_cluster(cluster: SimulatedCluster, *, workers: int = 2) -> list[SimulatedNode]:
    """Launch a master and its workers, and run their agents until all are ready."""
    nodes = launch_nodes(cluster, workers=workers)
    cluster.run(nodes, until=all_ready(nodes))
    return nodes


def run_seconds(
    cluster: SimulatedCluster,
    nodes: list[SimulatedNode],
    count: int,
    *,
    until: Callable[[], bool] = lambda: False,
    every_s: int = 1,
) -> int:
    """Run a pass of every agent each second, or more rarely; return the number of seconds."""
    for passed in range(0, count, every_s):
        if until():
            return passed
        for node in nodes:
            node.agent.run_pass()
        cluster.clock.now += every_s
    return count


def hook_is_kept_alive(cluster: SimulatedCluster, draining_node: SimulatedNode) -> bool:
    """Return True if the hook would survive two lost heartbeats."""
    times = [at for instance_id, at in cluster.heartbeats if instance_id == draining_node.instance_id]
    gaps = [after - before for before, after in pairwise([*times, cluster.clock.now])]
    return bool(gaps) and max(gaps) * 3 <= DRAIN_HOOK_HEARTBEAT_TIMEOUT_S


def hosts_file(nodes: list[SimulatedNode]) -> str:
    """Render the hosts file of a master and its workers in index order."""
    master, *workers = nodes
    lines = [f"{master.address} deeplearning-master deeplearning-worker1"]
    lines += [f"{worker.address} deeplearning-worker{node_index}" for node_index, worker in enumerate(workers, start=2)]
    block = "\n".join(["# BEGIN deeplearning-cdk", *lines, "# END deeplearning-cdk"])
    return f"127.0.0.1 localhost\n{block}\n"
