"""Deploy a cluster on the local AWS for benchmarks, and read its nodes' logs from outside."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

from local.chaos.membership_check import Observation
from local.chaos.observer import ClusterObserver
from local.faults import Faults
from local.faults.node_handle import NodeHandle
from local.run.user import User, deploy_arguments, temporary_user

CLUSTER = "deeplearning"
AGREEMENT_TIMEOUT_S = 300.0
"""Longest wait until all nodes agree on the members, in seconds."""
RUN_TIMEOUT_S = 1700
CLOUD_INIT_LOG = "/var/log/cloud-init.log"
BEGINS = r"Running command \['/var/lib/cloud/instance/scripts/part-001'\]"
ENDS = r"finish: modules-final/config-scripts-user: SUCCESS"


def run_in_local_aws(module: str, measure: Callable[[], None]) -> int:
    """Call ``measure`` inside a fresh local AWS, in which this process starts the module again."""
    if is_inside():
        measure()
        return 0
    return subprocess.run(_inside(module), check=False, timeout=RUN_TIMEOUT_S).returncode


def output_inside(module: str, *, with_mxnet: bool = False) -> str:
    """Run the module with these arguments inside a fresh local AWS, and return its output.

    Changes to the checkout in there are lost. With ``with_mxnet`` its nodes can install MXNet, Horovod and Open MPI.
    Raises CalledProcessError and TimeoutExpired.
    """
    command = _inside(module, "--mxnet") if with_mxnet else _inside(module)
    return subprocess.run(command, check=True, timeout=RUN_TIMEOUT_S, stdout=subprocess.PIPE, text=True).stdout


def is_inside() -> bool:
    return "LOCAL_AWS_DIR" in os.environ


def _inside(module: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "local", "run", *options, "--", sys.executable, "-m", module, *sys.argv[1:]]


@contextmanager
def user_with_cluster(*settings: str, nodes: int) -> Iterator[User]:
    """Deploy a cluster with additional settings (NAME=VALUE), and yield its user."""
    with temporary_user() as user:
        run_cdk(user, "bootstrap")
        run_cdk(user, *deploy_arguments(nodes=nodes), *(word for setting in settings for word in ("-c", setting)))
        yield user


def run_cdk(user: User, *arguments: str) -> None:
    """Run cdk with its output on stderr, apart from the results."""
    done = subprocess.run(
        ["cdk", *arguments], env=dict(user.environment), stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False
    )
    done.check_returncode()


def observer(user: User) -> ClusterObserver:
    return ClusterObserver.current(CLUSTER, environment=user.environment)


def replacement(user: User, before: Observation, node_index: int) -> Observation:
    """Return the membership that all nodes agree on once another instance has the node index. Raises TimeoutError."""
    deadline = time.monotonic() + AGREEMENT_TIMEOUT_S
    while Faults.current().instances(CLUSTER).get(node_index) in (None, before.instances[node_index]):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {AGREEMENT_TIMEOUT_S:.0f} s for another instance with index {node_index}")
        time.sleep(0.2)
    return observer(user).wait_for_agreement(AGREEMENT_TIMEOUT_S, previous=before)


def user_data_began(node: NodeHandle) -> float:
    """Return the time of the first line of a node's user data, in seconds since the epoch."""
    return _logged(node, BEGINS)


def user_data_took(node: NodeHandle) -> float:
    """Return the seconds from the first line of a node's user data to its last."""
    return _logged(node, ENDS) - user_data_began(node)


def _logged(node: NodeHandle, pattern: str) -> float:
    """Return the time of cloud-init's first log line that matches `pattern`; its clock is UTC here."""
    line = re.compile(rf"^(\S+ \S+) - .*{pattern}", re.MULTILINE)
    match = line.search(Path(node.path(CLOUD_INIT_LOG)).read_text())
    if match is None:
        raise LookupError(f"{CLOUD_INIT_LOG} of {node.instance_id} has no line like {pattern}")
    return datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=timezone.utc).timestamp()
