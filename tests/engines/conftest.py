"""Deploy a cluster with the ``engines`` setting, like a user; for ``make test-engines``."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from local.run.user import User, deploy_arguments, temporary_user
from tests.engines.training import SHORT, TWO_SERVERS, Training, train

NODES = 3
MASTER = "deeplearning-master"
WORKERS = tuple(f"deeplearning-worker{node_index}" for node_index in range(1, NODES + 1))
EXAMPLES = Path(__file__).parents[2] / "examples"
SHARED_CONNECTION = ("-o", "ControlMaster=auto", "-o", "ControlPath=/run/ssh-%C", "-o", "ControlPersist=120")


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineCluster:
    """A deployed cluster and its user."""

    user: User
    before: dict[str, list[str]] = field(default_factory=dict)
    """Command lines of the user's processes on each node before the first job."""

    def processes(self, alias: str) -> list[str]:
        """List the command lines of all processes of a node's login user; the listing's own are always the same."""
        return self.on(alias, "ps -u ubuntu -o args=").splitlines()

    def on(self, alias: str, command: str) -> str:
        """Return a command's output, both streams, in a login shell like a person's."""
        login = f"timeout 400 bash -l <<'END' 2>&1\n{command}\nEND"
        try:
            return self.user.output(*self.user.ssh_command(alias, login, options=SHARED_CONNECTION)).strip()
        except subprocess.CalledProcessError as error:
            raise AssertionError(f"exit code {error.returncode} of {command}\n{error.stdout}") from error

    def on_master(self, command: str) -> str:
        return self.on(MASTER, command)


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
