"""Simulate a cluster for the agent's tests: AWS is moto, and each node's root is a temporary directory."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

from moto.autoscaling.models import FakeAutoScalingGroup, autoscaling_backends
from moto.core.models import DEFAULT_ACCOUNT_ID as ACCOUNT_ID

from bootstrap.agent import Agent
from bootstrap.aws.clients import Clients
from bootstrap.aws.imds import Identity
from bootstrap.aws.log_shipping import LogShipper
from bootstrap.cluster.table import Table
from bootstrap.contract import CLUSTER_TAG, DRAIN_HOOK, HOST_KEY_FILE, HOSTS_FILE, NODE_TYPE_TAG
from bootstrap.dependencies import AgentDependencies
from bootstrap.files.paths import under_root
from tests.bootstrap.identities import NETWORKS, public_key
from tests.bootstrap.simulated_node import (
    CLUSTER,
    REGION,
    STACK,
    TABLE,
    Clock,
    Metadata,
    RecordedSystem,
    SimulatedNode,
    node_config,
)

START = datetime(2026, 12, 1, tzinfo=timezone.utc)
"""Time in UTC at the clock's zero."""


class Signal(NamedTuple):
    """A node's signal to CloudFormation."""

    resource: str
    """Logical ID of the node's group."""
    status: str
    unique_id: str
    """The instance, followed by what failed, if anything."""


@dataclass
class SimulatedCluster:
    """Two Auto Scaling groups, a table, a log group and a stack in moto, and our nodes in them."""

    tmp_path: Path
    clients: Clients
    subnet: str
    signals: list[Signal] = field(default_factory=list)
    completed_hooks: list[str] = field(default_factory=list)
    """Instances that completed their lifecycle hook."""
    heartbeats: list[tuple[str, float]] = field(default_factory=list)
    """Heartbeats to the lifecycle hook: the instance and the time."""
    marked_unhealthy: list[str] = field(default_factory=list)
    """Instances that asked for their replacement."""
    clock: Clock = field(default_factory=Clock)

    def record_signal(self, **signal: str) -> None:
        """Stand in for CloudFormation, because moto accepts signals only for its own stacks and keeps none."""
        assert signal["StackName"] == STACK
        self.signals.append(Signal(signal["LogicalResourceId"], signal["Status"], signal["UniqueId"]))

    def record_completion(self, **action: str) -> None:
        """Stand in for Auto Scaling, because moto has hooks but no actions that wait."""
        instance_id, group = action.pop("InstanceId"), action.pop("AutoScalingGroupName")
        assert group in (f"{CLUSTER}-master", f"{CLUSTER}-worker")
        assert action == {"LifecycleHookName": DRAIN_HOOK, "LifecycleActionResult": "CONTINUE"}
        self.completed_hooks.append(instance_id)

    def record_heartbeat(self, **action: str) -> None:
        """Stand in for Auto Scaling, as above."""
        instance_id, group = action.pop("InstanceId"), action.pop("AutoScalingGroupName")
        assert group in (f"{CLUSTER}-master", f"{CLUSTER}-worker")
        assert action == {"LifecycleHookName": DRAIN_HOOK}
        self.heartbeats.append((instance_id, self.clock.now))

    def record_health(self, **health: object) -> None:
        """Stand in for Auto Scaling, which alone decides about a node's health."""
        self.marked_unhealthy.append(str(health.pop("InstanceId")))
        assert health == {"HealthStatus": "Unhealthy", "ShouldRespectGracePeriod": False}

    @property
    def table(self) -> Table:
        return Table(self.clients.dynamodb, name=TABLE, networks=NETWORKS)

    def by_index(self) -> dict[int, str]:
        """Return the instance IDs by index, as stored in the table."""
        return {member.node_index: member.instance_id for member in self.table.read_membership().members}

    def terminate(self, instance_id: str, *, shrink: bool = False) -> None:
        """End an instance finally; without ``shrink``, its group immediately starts another."""
        self.clients.autoscaling.terminate_instance_in_auto_scaling_group(
            InstanceId=instance_id, ShouldDecrementDesiredCapacity=shrink
        )

    def set_lifecycle_state(self, instance_id: str, state: str) -> None:
        """Set a lifecycle state that moto's groups skip."""
        for group in self._groups():
            for instance in group.instance_states:
                if instance.instance.id == instance_id:
                    instance.lifecycle_state = state

    def drop_from_group(self, instance_id: str) -> None:
        """Remove the instance from its group while EC2 still has it."""
        for group in self._groups():
            group.instance_states = [
                instance for instance in group.instance_states if instance.instance.id != instance_id
            ]

    def set_desired(self, node_type: str, size: int) -> None:
        """Set the desired capacity before the group acts on it."""
        for group in self._groups():
            if group.name == f"{CLUSTER}-{node_type}":
                group.desired_capacity = size

    def _groups(self) -> list[FakeAutoScalingGroup]:
        return [*autoscaling_backends[ACCOUNT_ID][REGION].autoscaling_groups.values()]

    def add_group(self, node_type: str, *, size: int) -> None:
        self.clients.autoscaling.create_auto_scaling_group(
            AutoScalingGroupName=f"{CLUSTER}-{node_type}",
            LaunchTemplate={"LaunchTemplateName": "node"},
            MinSize=0,
            MaxSize=100,
            DesiredCapacity=size,
            VPCZoneIdentifier=self.subnet,
            Tags=[
                {"Key": key, "Value": value, "PropagateAtLaunch": True}
                for key, value in ((CLUSTER_TAG, CLUSTER), (NODE_TYPE_TAG, node_type))
            ],
        )

    def instances(self, node_type: str) -> list[tuple[str, str]]:
        """Return the IDs and private addresses, in the order of the IDs."""
        groups = self.clients.autoscaling.describe_auto_scaling_groups(
            AutoScalingGroupNames=[f"{CLUSTER}-{node_type}"]
        )["AutoScalingGroups"]
        ids = sorted(instance["InstanceId"] for instance in groups[0]["Instances"])
        described = self.clients.ec2.describe_instances(InstanceIds=ids)["Reservations"] if ids else []
        addresses = {
            instance["InstanceId"]: instance["PrivateIpAddress"]
            for reservation in described
            for instance in reservation["Instances"]
        }
        return [(instance_id, addresses[instance_id]) for instance_id in ids]

    def boot_replacement(self, node_type: str, *, of: "list[SimulatedNode]", **settings: Any) -> SimulatedNode:
        """Boot the group's only instance that is not an old node."""
        old = {node.instance_id for node in of}
        ids = [instance_id for instance_id, _ in self.instances(node_type)]
        [number] = [number for number, instance_id in enumerate(ids) if instance_id not in old]
        return self.boot_node(node_type, number, **settings)

    def boot_node(
        self, node_type: str, number: int = 0, *, settings: Mapping[str, object] | None = None, **dependencies: Any
    ) -> SimulatedNode:
        """Boot the node of one of the group's instances, on its existing disk if there is one."""
        instance_id, address = self.instances(node_type)[number]
        root = self.tmp_path / instance_id
        host_key = public_key(instance_id)
        _image_file(root, HOST_KEY_FILE, f"{host_key} root@image\n")
        _image_file(root, HOSTS_FILE, "127.0.0.1 localhost\n")
        system, metadata = RecordedSystem(), Metadata()
        values: dict[str, Any] = {
            "root": root,
            "system": system,
            "identify": lambda: Identity(instance_id=instance_id, address=address),
            "read_metadata": metadata,
            "connect": lambda _region: self.clients,
            "shipper": LogShipper(monotonic=self.clock),
            "nvidia_smi": lambda: None,
            "resolve": lambda name: resolve(root, name),
            "answers_ssh": lambda _address: True,
            "gpu_percent": lambda: None,
            "broadcast_to_terminals": lambda sentence: system.calls.append(f"wall {sentence}"),
            "utc_now": lambda: START + timedelta(seconds=self.clock.now),
            "monotonic": self.clock,
            "jitter": lambda: 1.0,
            "random": lambda: 0.5,
        }
        agent = Agent(node_config(node_type, **(settings or {})), AgentDependencies(**(values | dependencies)))
        return SimulatedNode(
            instance_id=instance_id,
            address=address,
            root=root,
            host_key=host_key,
            system=system,
            clock=self.clock,
            agent=agent,
            metadata=metadata,
        )

    def run(self, nodes: list[SimulatedNode], *, until: Callable[[], bool], passes: int = 20) -> None:
        """Let every agent make passes, two seconds apart, until the cluster is in the wanted state."""
        for _ in range(passes):
            for node in nodes:
                node.agent.run_pass()
            if until():
                return
            self.clock.now += 2.0
        raise AssertionError(
            f"the cluster did not reach the expected state after {passes} passes of {len(nodes)} agents"
        )


def resolve(root: Path, name: str) -> str:
    """Return the address of a host name in the node's own hosts file."""
    for line in under_root(root, HOSTS_FILE).read_text().splitlines():
        address, *names = line.split("#")[0].split() or [""]
        if name in names:
            return address
    raise OSError(f"no address of {name}")


def _image_file(root: Path, path: str, text: str) -> None:
    """Write the files of the machine image and of the first boot."""
    file = under_root(root, path)
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
