"""Read what EC2 describes of a cluster's nodes, and what the nodes tell their programs."""

import subprocess
from dataclasses import dataclass
from typing import Any, Final

from bootstrap.contract import NODE_TYPES, WORKERS_FILE, group_name
from local.faults import Faults
from local.faults.clients import client
from tests.e2e.support.deployed_cluster import STACK, group_instances
from tests.e2e.support.laptop import Laptop
from tests.waiting import wait_until

HEAL_S: Final = 180.0
FOUR_CARDS: Final = "p4d.24xlarge"
"""Instance type with four network cards."""
DEVICES: Final = "ls /sys/class/infiniband 2>/dev/null || true"
"""Command that lists a node's adapters."""
SHELLS: Final = ("env", "bash -lc env", "sudo systemd-run --quiet --wait --pipe --collect env")
"""Commands that print the variables of ``ssh host command``, of a login shell and of a unit."""
VARIABLES: Final = ("DEEPLEARNING_WORKERS_COUNT", "DEEPLEARNING_WORKER_GPU_COUNT", "DEEPLEARNING_WORKERS_PATH")


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Interface:
    """A network interface of an instance."""

    card: int
    device: int
    kind: str


INTERFACES_WITHOUT_EFA: Final = [Interface(card=0, device=0, kind="interface")]
INTERFACES_OF_FOUR_CARDS: Final = [
    Interface(card=0, device=0, kind="interface"),
    Interface(card=0, device=1, kind="efa-only"),
    *(Interface(card=card, device=0, kind="efa-only") for card in (1, 2, 3)),
]
"""Interfaces of a node of such a type with EFA, in order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkersSeen:
    """The cluster's workers as a node shows them to its programs."""

    hosts: list[str]
    """Contents of the workers file."""
    variables: list[tuple[str, ...]]
    """Values of VARIABLES, in each of SHELLS."""


def instances_by_node_type() -> dict[str, list[dict[str, Any]]]:
    """Return the instances of both groups by node type."""
    return {kind: group_instances(group_name(STACK, kind)) for kind in NODE_TYPES}


def running_instances() -> set[str]:
    """Return every instance of the account that costs money."""
    filters: Any = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    reservations = client("ec2").describe_instances(Filters=filters)["Reservations"]
    return {instance["InstanceId"] for reservation in reservations for instance in reservation["Instances"]}


def instance_of(node_index: int) -> str:
    return Faults.current().instances(STACK)[node_index]


def interfaces(instance: dict[str, Any]) -> list[Interface]:
    """Return the interfaces of an instance, in the order of their cards."""
    return sorted(
        Interface(
            card=interface["Attachment"]["NetworkCardIndex"],
            device=interface["Attachment"]["DeviceIndex"],
            kind=interface["InterfaceType"],
        )
        for interface in instance["NetworkInterfaces"]
    )


def wait_for_another(node_index: int, *, than: set[str]) -> str:
    """Wait until another instance has a node's number, and return it."""
    faults = Faults.current()
    wait_until(
        lambda: faults.instances(STACK).get(node_index) not in (None, *than),
        f"another node {node_index}",
        timeout_s=HEAL_S,
        every_s=0.5,
    )
    return instance_of(node_index)


def launch(laptop: Laptop, command: str) -> "subprocess.CompletedProcess[str]":
    """Run ``launch`` on the master, and return its exit code and its output."""
    return subprocess.run(
        laptop.user.ssh_command("deeplearning-master", f"launch {command}"),
        env=dict(laptop.user.environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=HEAL_S,
    )


def workers_seen_on(laptop: Laptop, host: str) -> WorkersSeen:
    """Read the workers on a node."""
    shown = laptop.user.ssh(f"deeplearning-{host}", "; echo --; ".join((f"cat {WORKERS_FILE}", *SHELLS)))
    hosts, *environments = shown.split("--\n")
    return WorkersSeen(hosts=hosts.split(), variables=[_variables(text) for text in environments])


def expected_workers_seen(*workers: str, gpus: int) -> WorkersSeen:
    """Return what a node should show in a cluster with these workers, each of which has so many GPUs."""
    return WorkersSeen(
        hosts=[f"deeplearning-{worker}" for worker in workers],
        variables=[(str(len(workers)), str(gpus), WORKERS_FILE)] * len(SHELLS),
    )


def _variables(environment: str) -> tuple[str, ...]:
    variables = dict(line.split("=", 1) for line in environment.splitlines() if line.startswith("DEEPLEARNING_"))
    return tuple(variables.get(name, "") for name in VARIABLES)
