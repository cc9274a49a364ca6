"""Check before a run starts that its nodes can run the job: framework, environment, first host, GPUs, secrets."""

import asyncio
import json
from collections.abc import Sequence

from bootstrap.contract import NODE_HOST_PREFIX, SETUP_HASH_LENGTH, SETUP_RUNNING
from launcher.errors import BusyError, LaunchError, RefusedError, UsageError
from launcher.frameworks import LAUNCHED_BY_MPI
from launcher.hosts.hostfile import Host, first_and_others, merge_errors
from launcher.job.framework_check import check_framework, check_venv
from launcher.job.gpu_check import check_gpus
from launcher.spec import JobSpec
from launcher.transport.connection import RunnerConnection

PARAMETERS_PER_S = 20
"""Calls a second to Parameter Store, for which all nodes take turns: half of what it allows an account by default."""


async def check_nodes(job: JobSpec, connections: Sequence[RunnerConnection], *, is_restart: bool) -> None:
    """Raise RefusedError if a node cannot run its part of the job; skip setup and GPUs on a restart."""
    await check_framework(job, connections)
    await check_venv(job, connections)
    check_first_host(job, connections)
    if not job.force:
        check_fabric([(connection.host, connection.efa_devices) for connection in connections])
    # On a restart, a replacement may have run a newer setup, which --max-restarts accepts; and the processes of the
    # failed run may still hold the GPUs.
    if not (job.force or is_restart):
        check_setup([(connection.host, connection.setup) for connection in connections])
        check_gpus(job, [connection.gpus for connection in connections])


def check_fabric(efa_devices: Sequence[tuple[Host, int | None]]) -> None:
    """Raise RefusedError if only some nodes have Elastic Fabric Adapters, because NCCL would hang.

    None means that the node runs a release that did not report adapters; it was launched without EFA.
    """
    hosts = [host for host, devices in efa_devices if not devices]
    if hosts and any(devices for _, devices in efa_devices):
        raise RefusedError(
            f"nothing started: no EFA on {first_and_others(hosts)} but on the other nodes: replace the nodes that "
            "were launched before efa or instance_type changed (--force starts anyway)"
        )


def check_setup(setup_states: Sequence[tuple[Host, str]]) -> None:
    """Raise BusyError if a setup is running on a node, RefusedError if setups differ: the ranks would differ too.

    Each state is the JSON of contract.SETUP_STATE_FILE, or empty.
    """
    setups = [(host, json.loads(text) if text else {}) for host, text in setup_states]
    running = [host for host, setup in setups if setup.get("state") == SETUP_RUNNING]
    if running:
        detail = f"the setup runs on {first_and_others(running)}"
        raise BusyError(f"nothing started: {detail}: wait until it is done", detail=detail)
    hosts: dict[str, list[Host]] = {}
    for host, setup in setups:
        hosts.setdefault(str(setup.get("sha256", ""))[:SETUP_HASH_LENGTH] or "none", []).append(host)
    if len(hosts) > 1:
        details = ", ".join(f"{sha256} on {first_and_others(names)}" for sha256, names in sorted(hosts.items()))
        raise RefusedError(
            f"nothing started: the nodes have run different setups, {details}: dlcluster setup brings all to the same "
            "one (--force starts anyway)"
        )


def check_first_host(job: JobSpec, connections: Sequence[RunnerConnection]) -> None:
    """Raise UsageError if mpirun would run on a node without a key for the others."""
    first = connections[0]
    is_remote_node = first.host.name.startswith(NODE_HOST_PREFIX) and not first.is_local
    if job.framework == LAUNCHED_BY_MPI and len(connections) > 1 and is_remote_node:
        raise UsageError(
            f"--launcher mpi needs this machine as the first host, as only the master has the cluster's key, "
            f"got {first.host}"
        )


async def read_secrets_on_nodes(job: JobSpec, connections: Sequence[RunnerConnection]) -> None:
    """Have each runner read the secrets of its own ranks; RefusedError if a node cannot."""
    if not job.secrets:
        return
    # Imported late: most jobs have no secrets.
    from launcher.transport.rpc import RemoteError, call

    parameters = sum(reference.startswith("ssm:") for reference in {*job.secrets.values()})

    async def read(connection: RunnerConnection, *, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await call(connection, operation="secrets", references=dict(job.secrets))

    reads = (
        read(connection, after_s=index * parameters / PARAMETERS_PER_S) for index, connection in enumerate(connections)
    )
    answers = await asyncio.gather(*reads, return_exceptions=True)
    errors = [answer for answer in answers if isinstance(answer, BaseException)]
    for error in errors:
        if not isinstance(error, LaunchError):
            raise error
    if errors:
        # A lost connection does not mean that the node refused.
        error_type = RefusedError if all(isinstance(error, RemoteError) for error in errors) else LaunchError
        raise error_type(f"nothing started: {merge_errors(errors)}")
