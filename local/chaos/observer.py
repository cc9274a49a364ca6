"""Check from outside that a cluster is healthy: all nodes know the correct membership and can log in to each other.

AWS (the groups and their instances) and the nodes' own keys define the correct membership; each node's files show what
it knows. Then the observer tries each node's connections, from its network and with its files.
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
    ExpectedMember,
    NodeView,
    Observation,
    differences,
    parse_hosts,
    parse_known_hosts,
    parse_variables,
)
from local.errors import LocalError
from local.faults.clients import client
from local.faults.node_handle import NodeHandle, node_handle
from local.run_dir import current_run_dir

LOGIN_USER = "ubuntu"
"""Login user of the local image."""
CONNECT_TIMEOUT_S = 5
LOGINS_AT_ONCE = 8
"""Number of connections tried simultaneously."""
INSTANCE_ID = "cat /var/lib/cloud/data/instance-id"
POLL_S = 0.5
FILES = (HOSTS_FILE, WORKERS_FILE, KNOWN_HOSTS_FILE, ENVIRONMENT_FILE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """State of a cluster at one time: its instances, and each node's files."""

    desired_nodes: int
    instances: tuple[ExpectedMember, ...]
    views: Mapping[str, NodeView | str]


class ClusterObserver:
    """Observes one cluster. ``environment`` has the SSH agent whose key opens its nodes."""

    def __init__(self, cluster: str, *, run_dir: Path, environment: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._run_dir = run_dir
        self._environment = dict(environment)

    @classmethod
    def current(cls, cluster: str, *, environment: Mapping[str, str] | None = None) -> "ClusterObserver":
        """Observe a cluster of the current local AWS."""
        return cls(cluster, run_dir=current_run_dir(), environment=environment or os.environ)

    def wait_for_agreement(self, timeout_s: float, *, previous: Observation | None = None) -> Observation:
        """Wait until nothing differs and every node reaches every other. Raises TimeoutError with the differences.

        ``previous`` is the membership agreed on before: each survivor must have kept its index.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            disagreements = self.differences(previous=previous)
            if not disagreements:
                try:
                    return self.observe()
                except LocalError as error:  # the membership changed between the two reads
                    disagreements = [str(error)]
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {timeout_s:.0f} s for the nodes to agree:\n" + "\n".join(disagreements))
            time.sleep(POLL_S)

    def differences(self, *, previous: Observation | None = None) -> list[str]:
        """List all errors, one line each; try connections only if everything else is right."""
        snapshot = self.snapshot()
        disagreements = differences(
            desired_nodes=snapshot.desired_nodes, instances=snapshot.instances, views=snapshot.views, previous=previous
        )
        return disagreements or self.login_failures(snapshot)

    def observe(self) -> Observation:
        """Return the membership as the nodes know it, once they agree. Raises LocalError."""
        states = {
            (s.generation, tuple(sorted(s.instances.items())))
            for s in self.snapshot().views.values()
            if isinstance(s, NodeView)
        }
        if len(states) != 1:
            raise LocalError(f"the nodes of {self._cluster} know {len(states)} memberships")
        ((generation, instances),) = states
        return Observation(generation=generation, instances=dict(instances))

    def snapshot(self) -> Snapshot:
        """Read AWS's and the nodes' states."""
        groups = self._groups()
        members = {i["InstanceId"]: group for group in groups for i in group["Instances"] if _in_service(i)}
        instances, views = [], {}
        for item in _running(sorted(members)):
            instance_id = item["InstanceId"]
            node = node_handle(self._run_dir, instance_id)
            node_type = _tag(members[instance_id], NODE_TYPE_TAG)
            instances.append(
                ExpectedMember(
                    instance_id=instance_id,
                    address=item["PrivateIpAddress"],
                    node_type=MASTER if node_type == MASTER else WORKER,
                    host_key=_host_key(node),
                )
            )
            views[instance_id] = read_node(node)
        desired_nodes = sum(group["DesiredCapacity"] for group in groups)
        return Snapshot(desired_nodes=desired_nodes, instances=tuple(instances), views=views)

    def login_failures(self, snapshot: Snapshot) -> list[str]:
        """Return a line for each pair of nodes of which one cannot log in to the other."""
        readable = {name: view for name, view in snapshot.views.items() if isinstance(view, NodeView)}
        pairs = [
            (source, view, node_index)
            for source, view in readable.items()
            for node_index in view.instances
            if view.node_index != node_index
        ]
        with ThreadPoolExecutor(LOGINS_AT_ONCE) as pool:
            answers = pool.map(lambda pair: self._try_login(*pair), pairs)
            return [answer for answer in answers if answer]

    def _try_login(self, source: str, view: NodeView, node_index: int) -> str | None:
        """Log in from one node to another, checking the host key; return why that failed, or None."""
        alias = worker_host(node_index)
        try:
            command = self._ssh(node_handle(self._run_dir, source), alias, view.hosts[alias])
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
        right = view.instances[node_index]
        return None if done.stdout.strip() == right else f"{source}: {alias} is {done.stdout.strip()}, must be {right}"

    def _ssh(self, node: NodeHandle, alias: str, address: str) -> Sequence[str]:
        """Build the ssh command, with a node's network and known hosts, but with this process's agent."""
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
        ssh_options = [argument for name, value in options.items() for argument in ("-o", f"{name}={value}")]
        return ["ip", "netns", "exec", node.instance_id, "ssh", "-F", "none", *ssh_options, alias, INSTANCE_ID]

    def _groups(self) -> list[Any]:
        pages = client("autoscaling").get_paginator("describe_auto_scaling_groups").paginate()
        groups = [group for page in pages for group in page["AutoScalingGroups"]]
        return [group for group in groups if _tag(group, CLUSTER_TAG) == self._cluster]


def read_node(node: NodeHandle) -> NodeView | str:
    """Read a node's files; return its knowledge of the membership, or why it gives none."""
    state = node.state()
    if state is None:
        return "has no membership yet" if node.is_up else "does not run"
    try:
        hosts, workers, known, variables = (node.path(file).read_text() for file in FILES)
    except (OSError, LocalError) as error:
        return f"has not all files: {error}"
    return NodeView(
        node_index=int(state["node_index"]),
        generation=int(state["generation"]),
        members=tuple((int(member["node_index"]), str(member["instance_id"])) for member in state["members"]),
        hosts=parse_hosts(hosts),
        workers=tuple(workers.splitlines()),
        known_hosts=parse_known_hosts(known),
        workers_count=parse_variables(variables).get(WORKERS_COUNT_VARIABLE, ""),
    )


def _host_key(node: NodeHandle) -> str:
    """Read a node's host key, without its comment."""
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
    instances = [i for page in pages for reservation in page["Reservations"] for i in reservation["Instances"]]
    return [instance for instance in instances if instance["State"]["Name"] == "running"]


def _tag(group: Mapping[str, Any], key: str) -> str | None:
    return next((tag["Value"] for tag in group["Tags"] if tag["Key"] == key), None)
