"""Deploy a cluster with the ``frameworks`` setting, like a user; for ``make test-frameworks``."""

from collections.abc import Iterator

import pytest

from local.run.user import deploy_arguments, temporary_user
from tests.frameworks.mxnet_cluster import EXAMPLES, NODES, SHARED_CONNECTION, WORKERS, MxnetCluster
from tests.frameworks.training import SHORT, TWO_SERVERS, Training, train


@pytest.fixture(scope="session")
def cluster() -> Iterator[MxnetCluster]:
    """Deploy a master and two workers, with the examples in ~/examples on each."""
    with temporary_user() as user:
        user.cdk("bootstrap")
        user.cdk(*deploy_arguments(nodes=NODES), "-c", "frameworks=horovod")
        user.write_ssh_config()
        cluster = MxnetCluster(user=user)
        for alias in WORKERS:
            copy = ["rsync", "-a", "-e", " ".join(user.ssh_command("", options=SHARED_CONNECTION)[:-1]), f"{EXAMPLES}/"]
            user.run(*copy, f"{alias}:examples/")
        # Wait until all connections are open, because the workers' connections pass through the master.
        for alias in WORKERS:
            cluster.before[alias] = cluster.processes(alias)
        yield cluster


@pytest.fixture(scope="session")
def all_reduce(cluster: MxnetCluster) -> Training:
    """Train with PyTorch; the prefix names a checkpoint, unlike the first article's command."""
    return train(cluster, "-n 2", "--kv-store dist_device_sync --model-prefix torch")


@pytest.fixture(scope="session")
def dist_sync(cluster: MxnetCluster) -> Training:
    """Train with parameter servers, without faults."""
    return train(cluster, TWO_SERVERS, f"--framework mxnet --kv-store dist_sync {SHORT} --model-prefix dist_sync")


@pytest.fixture(scope="session")
def horovod(cluster: MxnetCluster) -> Training:
    """Train with Horovod over Gloo, without faults."""
    return train(
        cluster, "--framework horovod -n 2", f"--framework horovod {SHORT} --batch-size 32 --model-prefix horovod"
    )
