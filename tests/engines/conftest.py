"""A cluster with the ``engines`` setting, deployed as a user deploys it; run by ``make test-engines``."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from local.run.user import User, deploy_arguments, new_user
from tests.engines.training import SHORT, TWO_SERVERS, Training, train

NODES = 3
MASTER = "deeplearning-master"
WORKERS = tuple(f"deeplearning-worker{slot}" for slot in range(1, NODES + 1))
EXAMPLES = Path(__file__).parents[2] / "examples"
SHARED = ("-o", "ControlMaster=auto", "-o", "ControlPath=/run/ssh-%C", "-o", "ControlPersist=120")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """A deployed cluster and its user."""

    user: User
    before: dict[str, list[str]] = field(default_factory=dict)
    """For each node the command lines of its user's processes before the first job."""

    def processes(self, alias: str) -> list[str]:
        """The command lines of all processes of a node's login user; those that look are the same each time."""
        return self.on(alias, "ps -u ubuntu -o args=").splitlines()

    def on(self, alias: str, command: str) -> str:
        """Output of a command, both streams, in a login shell as a person at a terminal has it."""
        login = f"timeout 120 bash -l <<'END' 2>&1\n{command}\nEND"
        try:
            return self.user.output(*self.user.ssh_command(alias, login, options=SHARED)).strip()
        except subprocess.CalledProcessError as error:
            raise AssertionError(f"exit code {error.returncode} of {command}\n{error.stdout}") from error

    def on_master(self, command: str) -> str:
        return self.on(MASTER, command)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Master and two workers, the examples in ~/examples on each."""
    with new_user() as user:
        user.cdk("bootstrap")
        user.cdk(*deploy_arguments(nodes=NODES), "-c", "engines=horovod")
        user.write_ssh_config()
        cluster = Cluster(user=user)
        for alias in WORKERS:
            copy = ["rsync", "-a", "-e", " ".join(user.ssh_command("", options=SHARED)[:-1]), f"{EXAMPLES}/"]
            user.run(*copy, f"{alias}:examples/")
        # Not before all connections are there: the workers' lead through the master.
        for alias in WORKERS:
            cluster.before[alias] = cluster.processes(alias)
        yield cluster


@pytest.fixture(scope="session")
def all_reduce(cluster: Cluster) -> Training:
    """PyTorch, with the name that the first article's command does not have."""
    return train(cluster, "-n 2", "--kv-store dist_device_sync --model-prefix torch")


@pytest.fixture(scope="session")
def dist_sync(cluster: Cluster) -> Training:
    """Parameter servers, undisturbed."""
    return train(cluster, TWO_SERVERS, f"--engine mxnet --kv-store dist_sync {SHORT} --model-prefix dist_sync")


@pytest.fixture(scope="session")
def horovod(cluster: Cluster) -> Training:
    """Horovod over Gloo, undisturbed."""
    return train(cluster, "--engine horovod -n 2", f"--engine horovod {SHORT} --batch-size 32 --model-prefix horovod")
