"""Form a cluster of a master and its workers, and render its expected hosts file."""

from collections.abc import Callable

from tests.bootstrap.simulated_cluster import Cluster, TestNode


def boot_cluster(cluster: Cluster, *, workers: int = 2) -> list[TestNode]:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=workers)
    return [cluster.node("master"), *(cluster.node("worker", number) for number in range(workers))]


def all_ready(nodes: list[TestNode]) -> Callable[[], bool]:
    return lambda: all(node.agent.is_signalled for node in nodes)


def hosts_file(nodes: list[TestNode]) -> str:
    """Render the hosts file of a master and its workers in index order."""
    master, *workers = nodes
    lines = [f"{master.address} deeplearning-master deeplearning-worker1"]
    lines += [f"{each.address} deeplearning-worker{node_index}" for node_index, each in enumerate(workers, start=2)]
    block = "\n".join(["# BEGIN deeplearning-cdk", *lines, "# END deeplearning-cdk"])
    return f"127.0.0.1 localhost\n{block}\n"
