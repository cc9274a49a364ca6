"""Simulate nodes whose GPUs come and go, and let time pass on them."""

from bootstrap.health.checks import HEALTH_CHECK_INTERVAL_S
from tests.bootstrap.booted_cluster import all_ready
from tests.bootstrap.simulated_cluster import SimulatedCluster
from tests.bootstrap.simulated_node import SimulatedNode


class Gpus:
    """nvidia-smi of a node whose GPUs come and go."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __call__(self) -> str:
        return "".join(f"GPU {number}: NVIDIA L4\n" for number in range(self.count))


def master_with(cluster: SimulatedCluster, gpus: Gpus, *, workers: int = 0, **settings: object) -> SimulatedNode:
    cluster.add_group("master", size=1)
    cluster.add_group("worker", size=workers)
    return cluster.boot_node("master", settings={"gpu_count": 4} | settings, nvidia_smi=gpus)


def run_passes(cluster: SimulatedCluster, node: SimulatedNode, count: int, *, every: float = 2.0) -> None:
    for _ in range(count):
        node.agent.run_pass()
        cluster.clock.now += every


def run_past_the_deadline(cluster: SimulatedCluster, node: SimulatedNode) -> None:
    run_passes(cluster, node, 3)
    cluster.clock.now += 600.0
    run_passes(cluster, node, 5, every=20.0)


def ready_master(cluster: SimulatedCluster, gpus: Gpus) -> SimulatedNode:
    master = master_with(cluster, gpus)
    cluster.run([master], until=all_ready([master]))
    return master


def run_minutes(cluster: SimulatedCluster, node: SimulatedNode, count: int) -> None:
    """Make passes as often as a ready node does."""
    run_passes(cluster, node, int(count * HEALTH_CHECK_INTERVAL_S / 6.0), every=6.0)
