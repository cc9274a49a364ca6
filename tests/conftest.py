"""Provide fixtures for all tests.

Each part of the product is tested on its own stand-in for a cluster:

SimulatedCluster (tests/bootstrap)       agents, in this process: AWS is moto, and a clock is simulated
LoopbackCluster (tests/launcher)         the launcher, on three loopback addresses, two of them behind sshd
ClusterWithHomes (tests/launcher/sync)   the same for copies of files: each node has a home directory
MotoCluster (tests/cli)                  dlcluster, with a stack and a table in moto and no nodes
SshdCluster (tests/cli/ssh)              the same for logins: its two nodes are sshd processes
NodelessCluster (tests/cli/node_groups)  pause, resume and resize, on a local control plane without nodes
UpCluster (tests/cli/up)                 the same for dlcluster up, with three candidate zones
FakeCloud (tests/local)                  the local AWS's data plane, with an inventory and no nodes
RoleCluster (tests/security)             what the roles allow, with the product's template on a local control plane
DeployedCluster (tests/e2e)              all of it end to end, on real nodes of the local AWS
"""

import functools
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.loaders import JSONFileLoader
from xdist.workermanage import NodeManager

from tests.tree import bytecode_below

REPOSITORY = Path(__file__).parents[1]
SLOWEST = (
    "stacks/network/test_pinned_zone.py",
    "stacks/test_immutable_settings.py",
    "trainer/test_digits.py",
    "trainer/test_convergence.py",
    "bootstrap/test_kill.py",
    "trainer/checkpoint/test_s3_checkpoints.py",
    "trainer/checkpoint/test_resume.py",
    "launcher/transport/test_heartbeat.py",
    "test_app.py",
    "stacks/test_validators.py",
)
"""Files that run for half a minute or more; they start first, because everything would wait for one that starts
last."""
EXIT_TIMEOUT_S = 120
"""Timeout for the end of a test process and of what it has started."""
pytest.register_assert_rewrite(
    "tests.cli.moto_cluster",
    "tests.cli.preflight.stubbed_account",
    "tests.e2e",
    "tests.launcher.loopback_cluster",
    "tests.local.control_plane.harness",
)


def pytest_configure() -> None:
    """Let test processes end by themselves, and make programs that the tests start interruptible.

    After ten seconds pytest-xdist would kill a worker, which then leaves its temporary directories. A shell makes
    background commands ignore SIGINT.
    """
    NodeManager.EXIT_TIMEOUT = EXIT_TIMEOUT_S
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    first = {REPOSITORY / "tests" / file: place for place, file in enumerate(SLOWEST)}
    if missing := [str(path.relative_to(REPOSITORY)) for path in first if not path.exists()]:
        raise pytest.UsageError(f"SLOWEST in tests/conftest.py names files that do not exist: {', '.join(missing)}")
    items.sort(key=lambda item: first.get(item.path, len(first)))


@pytest.fixture(scope="session", autouse=True)
def _no_bytecode_in_the_checkout() -> Iterator[None]:
    """Stop programs that tests start in isolation, as nodes do, from writing bytecode beside their sources."""
    yield
    for package in REPOSITORY.glob("[a-z]*"):
        for directory in bytecode_below(package):
            shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def _jsii_runtime_ends_first() -> Iterator[None]:
    """End jsii's runtime before this process ends.

    At the end jsii kills a runtime that takes five seconds, as on a busy machine, and leaves its temporary directories.
    """
    yield
    if "aws_cdk" in sys.modules:
        from jsii._runtime import kernel

        provider: Any = kernel.provider
        runtime = provider._process._process
        runtime.stdin.close()
        runtime.wait(timeout=EXIT_TIMEOUT_S)


@pytest.fixture(scope="session", autouse=True)
def _services_are_read_once() -> Iterator[None]:
    """Cache botocore's descriptions of AWS's services, which each session of a command or agent reads otherwise.

    tests/service_models.py shares more than the files, for the tests of dlcluster.
    """
    read = functools.cache(functools.partial(JSONFileLoader.load_file, JSONFileLoader()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", lambda _, file_path: read(file_path))
        yield


@pytest.fixture(autouse=True)
def _own_default_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make boto3 read each test's own credentials: its default session would keep those of the first test."""
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
