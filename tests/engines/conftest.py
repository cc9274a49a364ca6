"""Deploy a cluster with the ``engines`` setting, like a user; for ``make test-engines``."""

from collections.abc import Iterator

import pytest

from local.run.user import deploy_arguments, temporary_user
from tests.engines.engine_cluster import EXAMPLES, NODES, SHARED_CONNECTION, WORKERS, EngineCluster
from tests.engines.training import SHORT, TWO_SERVERS, Training, train


@pytest.fixture(scope="session")
def cluster() -> Iterator[EngineCluster]:
    """Deploy a master and two workers, with the examples in ~/examples on each."""
    with temporary_user() as user:
        user.cdk("bootstrap")
        user.cdk(*deploy_arguments(nodes=NODES), "-c", "engines=horovod")
        user.write_ssh_config()
        cluster = EngineCluster(user=user)
        for alias in WORKERS:
            copy = ["rsync", "-a", "-e", " ".join(user.ssh_command("", options=SHARED_CONNECTION)[:-1]), f"{EXAMPLES}/"]
            user.run(*copy, f"{alias}:examples/")
        # Wait until all connections are open, because the workers' connections pass through the master.
        for alias in WORKERS:
            cluster.before[alias] = cluster.processes(alias)
        yield cluster


@pytest.fixture(scope="session")
def all_reduce(cluster: EngineCluster) -> Training:
    """Train with PyTorch; the prefix names a checkpoint, unlike the first article's command."""
    return train(cluster, "-n 2", "--kv-store dist_device_sync --model-prefix torch")


@pytest.fixture(scope="session")
def dist_sync(cluster: EngineCluster) -> Training:
    """Train with parameter servers, without faults."""
    return train(cluster, TWO_SERVERS, f"--engine mxnet --kv-store dist_sync {SHORT} --model-prefix dist_sync")


@pytest.fixture(scope="session")
def horovod(cluster: EngineCluster) -> Training:
    """Train with Horovod over Gloo, without faults."""
    return train(cluster, "--engine horovod -n 2", f"--engine horovod {SHORT} --batch-size 32 --model-prefix horovod")
