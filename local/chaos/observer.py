"""Looks from outside whether a cluster is whole: every node knows the same, correct membership, and reaches the others.

What is right comes from AWS (the groups and their instances) and from the nodes' own keys; what nodes know is read from
their files without asking them. Then each node's connections are tried, from its network and by its files.
"""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bootstrap.contract import (
    CLUSTER_TAG,
    ENVIRONMENT_FILE,
    HOST_KEY_FILE,
    HOSTS_FILE,
    KNOWN_HOSTS_FILE,
    MASTER,
    NODE_TYPE_TAG,
    WORKER,
    WORKERS_COUNT_VARIABLE,
    WORKERS_FILE,
    worker_host,
)
from local.chaos.membership_check import (
    Instance,
    Observation,
    Seen,
    differences,
    hosts_of,
    known_hosts_of,
    variables_of,
)
from local.errors import LocalError
from local.faults.clients import client
from local.faults.nodes import NodeHandle, node_of

LOGIN_USER = "ubuntu"
"""Of the local image."""
CONNECT_TIMEOUT_S = 5
AT_ONCE = 8
"""Connections that are tried at once."""
INSTANCE_ID = "cat /var/lib/cloud/data/instance-id"
POLL_S = 0.5
FILES = (HOSTS_FILE, WORKERS_FILE, KNOWN_HOSTS_FILE, ENVIRONMENT_FILE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """One look at a cluster."""

    desired: int
    instances: tuple[Instance, ...]
    seen: Mapping[str, Seen | str]


class Observer:
    """Observes one cluster. ``environment`` has the SSH agent by which its nodes can be logged into."""

    def __init__(self, cluster: str, *, run_dir: Path, environment: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._run_dir = run_dir
        self._environment = dict(environment)

    @classmethod
    def here(cls, cluster: str, *, environment: Mapping[str, str] | None = None) -> "Observer":
        """In the local AWS that this process is in."""
        return cls(cluster, run_dir=Path(os.environ["LOCAL_AWS_DIR"]), environment=environment or os.environ)

    def await_agreement(self, deadline_s: float, *, previous: Observation | None = None) -> Observation:
        """Wait until nothing differs and every node reaches every other. Raises TimeoutError with what does not.

        ``previous`` is what was agreed on before: who is still there must have kept its slot.
        """
        deadline = time.monotonic() + deadline_s
        while found := self.differences(previous=previous):
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {deadline_s:.0f} s for the nodes to agree:\n" + "\n".join(found))
            time.sleep(POLL_S)
        return self.observe()

    def differences(self, *, previous: Observation | None = None) -> list[str]:
        """What is not as it must be, a line each; connections are tried only when all else is right."""
        look = self.look()
        found = differences(desired=look.desired, instances=look.instances, seen=look.seen, previous=previous)
        return found or self.unreachable(look)

    def observe(self) -> Observation:
        """The membership as the nodes know it, once they agree. Raises LocalError."""
        states = {
            (s.generation, tuple(sorted(s.slots.items()))) for s in self.look().seen.values() if isinstance(s, Seen)
        }
        if len(states) != 1:
            raise LocalError(f"the nodes of {self._cluster} know {len(states)} memberships")
        ((generation, slots),) = states
        return Observation(generation=generation, slots=dict(slots))

    def look(self) -> Look:
        """Read what AWS says and what the nodes say."""
        groups = self._groups()
        members = {i["InstanceId"]: group for group in groups for i in group["Instances"] if _in_service(i)}
        instances, seen = [], {}
        for item in _running(sorted(members)):
            instance_id = item["InstanceId"]
            node = node_of(self._run_dir, instance_id)
            node_type = _tag(members[instance_id], NODE_TYPE_TAG)
            instances.append(
                Instance(
                    instance_id=instance_id,
                    address=item["PrivateIpAddress"],
                    node_type=MASTER if node_type == MASTER else WORKER,
                    host_key=_host_key(node),
                )
            )
            seen[instance_id] = read_node(node)
        desired = sum(group["DesiredCapacity"] for group in groups)
        return Look(desired=desired, instances=tuple(instances), seen=seen)

    def unreachable(self, look: Look) -> list[str]:
        """A line for each pair of nodes of which the one cannot log in to the other."""
        told = {name: said for name, said in look.seen.items() if isinstance(said, Seen)}
        pairs = [(source, said, slot) for source, said in told.items() for slot in said.slots if said.slot != slot]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers = pool.map(lambda pair: self._try(*pair), pairs)
            return [answer for answer in answers if answer]

    def _try(self, source: str, said: Seen, slot: int) -> str | None:
        """Log in from a node to a slot with the host key checked; why that is not the right machine, or None."""
        alias = worker_host(slot)
        try:
            command = self._ssh(node_of(self._run_dir, source), alias, said.hosts[alias])
        except LocalError as error:
            return str(error)
        try:
            done = subprocess.run(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=4 * CONNECT_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            return f"{source}: {alias} accepts connections and does not answer"
        if done.returncode != 0:
            why = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            return f"{source}: cannot log in to {alias}: {why[-1]}"
        right = said.slots[slot]
        return None if done.stdout.strip() == right else f"{source}: {alias} is {done.stdout.strip()}, must be {right}"

    def _ssh(self, node: NodeHandle, alias: str, address: str) -> Sequence[str]:
        """The command line of ssh in a node's network and with its known hosts, but with the agent that is here."""
        options = {
            "BatchMode": "yes",
            "ConnectTimeout": str(CONNECT_TIMEOUT_S),
            "StrictHostKeyChecking": "yes",
            "GlobalKnownHostsFile": str(node.path(KNOWN_HOSTS_FILE)),
            "UserKnownHostsFile": "none",
            "HostName": address,
            "HostKeyAlias": alias,
            "User": LOGIN_USER,
        }
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        return ["ip", "netns", "exec", node.instance_id, "ssh", "-F", "none", *words, alias, INSTANCE_ID]

    def _groups(self) -> list[Any]:
        pages = client("autoscaling").get_paginator("describe_auto_scaling_groups").paginate()
        groups = [group for page in pages for group in page["AutoScalingGroups"]]
        return [group for group in groups if _tag(group, CLUSTER_TAG) == self._cluster]


def read_node(node: NodeHandle) -> Seen | str:
    """What a node says of the membership, or why it says nothing."""
    state = node.state()
    if state is None:
        return "has no membership yet" if node.is_up else "does not run"
    try:
        hosts, workers, known, variables = (node.path(file).read_text() for file in FILES)
    except (OSError, LocalError) as error:
        return f"has not all files: {error}"
    return Seen(
        slot=int(state["node_index"]),
        generation=int(state["generation"]),
        members=tuple((int(member["node_index"]), str(member["instance_id"])) for member in state["members"]),
        hosts=hosts_of(hosts),
        workers=tuple(workers.splitlines()),
        known_hosts=known_hosts_of(known),
        workers_count=variables_of(variables).get(WORKERS_COUNT_VARIABLE, ""),
    )


def _host_key(node: NodeHandle) -> str:
    """Without its comment."""
    try:
        return " ".join(node.path(HOST_KEY_FILE).read_text().split()[:2])
    except (OSError, LocalError):
        return ""


def _in_service(member: Mapping[str, Any]) -> bool:
    return bool(member["LifecycleState"] == "InService")


def _running(instance_ids: Sequence[str]) -> list[Any]:
    if not instance_ids:
        return []
    pages = client("ec2").get_paginator("describe_instances").paginate(InstanceIds=list(instance_ids))
    found = [i for page in pages for reservation in page["Reservations"] for i in reservation["Instances"]]
    return [instance for instance in found if instance["State"]["Name"] == "running"]


def _tag(group: Mapping[str, Any], key: str) -> str | None:
    return next((tag["Value"] for tag in group["Tags"] if tag["Key"] == key), None)
