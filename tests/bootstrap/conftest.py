"""A cluster in moto for the agent's tests, and nodes whose root is a temporary directory."""

import json
import os
import pwd
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest
from botocore.client import BaseClient
from botocore.model import OperationModel
from moto import mock_aws

from bootstrap.agent import Agent, World
from bootstrap.aws import Clients, connect
from bootstrap.config import NodeConfig, parse_config
from bootstrap.contract import CLUSTER_TAG, HOST_KEY_FILE, HOSTS_FILE, NODE_TYPE_TAG, TABLE_KEY
from bootstrap.imds import Identity
from bootstrap.logs import LogShipper
from bootstrap.node import place

REGION = "eu-west-1"
CLUSTER = "digits"
TABLE = "digits-table"
LOG_GROUP = "digits-logs"
STACK = "digits-stack"
MOTO_IMAGE = "ami-12c6146b"
"""One of the images that moto knows from the start."""


class UnexpectedSubprocessError(BaseException):
    """No Exception, so that no handler of the code under test swallows it."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "allow_subprocess: the test starts programs on purpose")


@pytest.fixture(autouse=True)
def _no_subprocess(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("allow_subprocess"):
        return

    def refuse(*arguments: object, **_: object) -> NoReturn:
        raise UnexpectedSubprocessError(f"unexpected program {arguments}")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(os, "system", refuse)


@pytest.fixture(scope="session")
def clients() -> Clients:
    """Clients that reach nothing but moto; made once, as reading the services' models is slow."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE"):
            patch.delenv(name, raising=False)
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        with mock_aws():
            return connect(REGION)


def config_values(node_type: str = "worker") -> dict[str, Any]:
    return {
        "version": 1,
        "cluster_name": CLUSTER,
        "region": REGION,
        "node_type": node_type,
        "stack_id": STACK,
        "signal_resource": f"{node_type.title()}Group",
        "table": TABLE,
        "log_group": LOG_GROUP,
        "bucket": "bucket",
        "master_role_id": "AROAMASTER",
        "worker_role_id": "AROAWORKER",
        "default_user": pwd.getpwuid(os.getuid()).pw_name,
        "bootstrap_timeout_s": 600,
    }


def node_config(node_type: str = "worker") -> NodeConfig:
    return parse_config(json.dumps(config_values(node_type)))


@dataclass
class Clock:
    """Time that passes only when a test says so."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class RecordedActions:
    """What would have been told to systemd and sshd."""

    environment: dict[str, str] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    def set_environment(self, values: Mapping[str, str]) -> None:
        self.environment.update(values)
        self.calls.append("set-environment")

    def reload_sshd(self) -> None:
        self.calls.append("reload-sshd")


@dataclass(kw_only=True)
class TestNode:
    """An agent with its own root, as on its own machine."""

    __test__ = False

    instance_id: str
    address: str
    root: Path
    host_key: str
    actions: RecordedActions
    clock: Clock
    agent: Agent

    def text(self, path: str) -> str:
        return place(self.root, path).read_text()


@dataclass
class Cluster:
    """Two Auto Scaling groups, a table, a log group and a stack in moto, and our nodes in them."""

    tmp_path: Path
    clients: Clients
    subnet: str
    signals: list[tuple[str, str, str]] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)

    def take_signal(self, **signal: str) -> None:
        """Stand in for CloudFormation: moto takes signals of its own stacks only, and keeps none."""
        assert signal["StackName"] == STACK
        self.signals.append((signal["LogicalResourceId"], signal["Status"], signal["UniqueId"]))

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
        """Ids and private addresses, in the order of the ids."""
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

    def node(self, node_type: str, number: int = 0, **world: Any) -> TestNode:
        """Boot the node of one of the group's instances, on the disk it may already have."""
        instance_id, address = self.instances(node_type)[number]
        root = self.tmp_path / instance_id
        host_key = f"ssh-ed25519 AAAA{instance_id.removeprefix('i-')}"
        _image_file(root, HOST_KEY_FILE, f"{host_key} root@image\n")
        _image_file(root, HOSTS_FILE, "127.0.0.1 localhost\n")
        actions = RecordedActions()
        values: dict[str, Any] = {
            "root": root,
            "actions": actions,
            "identify": lambda: Identity(instance_id=instance_id, address=address),
            "connect": lambda _region: self.clients,
            "shipper": LogShipper(monotonic=self.clock),
            "nvidia_smi": lambda: None,
            "monotonic": self.clock,
            "jitter": lambda: 1.0,
        }
        agent = Agent(node_config(node_type), World(**(values | world)))
        return TestNode(
            instance_id=instance_id,
            address=address,
            root=root,
            host_key=host_key,
            actions=actions,
            clock=self.clock,
            agent=agent,
        )

    def run(self, nodes: list[TestNode], *, until: Callable[[], bool], passes: int = 20) -> None:
        """Let every agent make passes, a second apart, until the cluster is as wanted."""
        for _ in range(passes):
            for node in nodes:
                node.agent.step()
            if until():
                return
            self.clock.now += 2.0
        raise AssertionError(f"not so after {passes} passes of {len(nodes)} agents")


def _image_file(root: Path, path: str, text: str) -> None:
    """What the machine image or the first boot has put there."""
    file = place(root, path)
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.fixture
def cluster(clients: Clients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """An empty cluster; the test adds the groups."""
    with mock_aws():
        clients.dynamodb.create_table(
            TableName=TABLE,
            KeySchema=[{"AttributeName": TABLE_KEY, "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": TABLE_KEY, "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        clients.logs.create_log_group(logGroupName=LOG_GROUP)
        clients.ec2.create_launch_template(
            LaunchTemplateName="node", LaunchTemplateData={"ImageId": MOTO_IMAGE, "InstanceType": "m5.large"}
        )
        subnet = clients.ec2.describe_subnets()["Subnets"][0]["SubnetId"]
        made = Cluster(tmp_path, clients, subnet)
        monkeypatch.setattr(clients.cloudformation, "signal_resource", made.take_signal)
        yield made


@pytest.fixture
def calls(cluster: Cluster) -> Iterator[Counter[str]]:
    """How often which operation is asked of AWS."""
    counter: Counter[str] = Counter()
    watched: list[BaseClient] = [
        cluster.clients.autoscaling,
        cluster.clients.dynamodb,
        cluster.clients.ec2,
    ]

    def count(model: OperationModel, **_: object) -> None:
        counter[model.name] += 1

    for client in watched:
        client.meta.events.register("before-call", count)
    yield counter
    for client in watched:
        client.meta.events.unregister("before-call", count)
