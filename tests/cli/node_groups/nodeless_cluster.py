"""Stand in for a cluster: its stack and groups on the local control plane, without nodes."""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from bootstrap.aws.group_sizes import PAUSED, ClusterSizes, GroupSize
from bootstrap.contract import CLUSTER_TAG, MASTER, NODE_TYPES, WORKER, group_name
from stacks.settings.nodes import declared_sizes
from tests.cli.moto_cluster import KEY, put_members
from tests.local.control_plane.harness import REGION, Aws, Stacks
from tests.local.control_plane.templates import cluster, group, launch_template, reference, resource

NAME = "demo"
DECLARED = declared_sizes(worker_count=2, needed_workers=2)
_POLICY = {"UpdatePolicy": {"AutoScalingScheduledAction": {"IgnoreUnmodifiedGroupSizeProperties": True}}}
"""Update policy of the real template: tests/stacks/test_group_sizes.py."""
CDK_JSON = '{"context": {"cluster": {"cluster_name": "demo", "worker_count": 2}}}\n'
_NETWORKS = "10.0.0.0/16"


def template(sizes: ClusterSizes, *, user_data: str = "first", fails: bool = False) -> dict[str, Any]:
    """Return a cluster's template, with the parts on which the sizes depend."""
    groups = {node_type.capitalize(): _group(sizes[node_type], group_name(NAME, node_type)) for node_type in NODE_TYPES}
    made = cluster(**groups)
    made["Resources"] |= {
        "Template": launch_template(UserData=_user_data(user_data)),
        "MasterAddress": resource("EC2::EIP", Domain="vpc"),
        "Table": resource(
            "DynamoDB::Table",
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        ),
    }
    if fails:
        # It fails only after both groups have been updated.
        made["Resources"]["Refused"] = resource(
            "EC2::SubnetRouteTableAssociation", depends_on=[*groups], RouteTableId="rtb-0", SubnetId="subnet-0"
        )
    outputs = {"ClusterName": NAME, "ClusterTable": reference("Table"), "LoginUser": "ubuntu"}
    outputs |= {"ClusterNetworks": _NETWORKS}
    return made | {"Outputs": {name: {"Value": value} for name, value in outputs.items()}}


def _user_data(text: str) -> dict[str, Any]:
    """Return user data that names the master's address, as the real one does."""
    return {"Fn::Base64": {"Fn::Join": ["", [text, reference("MasterAddress")]]}}


def _group(size: GroupSize, name: str) -> dict[str, Any]:
    made = group(size.desired_capacity) | _POLICY
    made["Properties"] |= {"AutoScalingGroupName": name, "MinSize": str(size.min_size), "MaxSize": str(size.max_size)}
    made["Properties"]["Tags"] = [{"Key": CLUSTER_TAG, "Value": NAME, "PropagateAtLaunch": True}]
    return made


@dataclass(kw_only=True)
class NodelessCluster:
    """The cluster: its stack, its groups, and a stand-in for its agents and for the CDK."""

    aws: Aws
    stacks: Stacks
    deployed: dict[str, Any] = field(default_factory=dict)
    lines: list[list[str]] = field(default_factory=list)
    """The cdk lines that were run."""
    setup_fails_on: str = ""
    """Type of the nodes on which the user's setup fails."""

    def create(self, sizes: ClusterSizes = DECLARED) -> None:
        self.deployed = template(sizes)
        self.stacks.create(self.deployed, name=NAME)

    def update(self, sizes: ClusterSizes, **changed: Any) -> None:
        changed_template = template(sizes, **changed)
        if changed_template != self.deployed:
            self.stacks.update(changed_template, name=NAME)
        if not changed.get("fails"):
            self.deployed = changed_template

    def cdk(self, line: list[str], **_options: Any) -> "FakeProcess":
        """Deploy what cdk.json describes, like the CDK's command line."""
        self.lines.append(line)
        settings = json.loads(Path("cdk.json").read_text())["context"]["cluster"]
        workers = settings["worker_count"]
        if "expires" in settings:
            return FakeProcess()
        self.update(declared_sizes(worker_count=workers, needed_workers=workers))
        return FakeProcess()

    def expire_at(self, time: datetime, *, deletes: bool = False) -> None:
        """Deploy an end, which dlcluster reads from the output."""
        changed = copy.deepcopy(self.deployed)
        changed["Outputs"]["ClusterExpires"] = {"Value": f"{time:%Y-%m-%dT%H:%M:%SZ}"}
        if deletes:
            changed["Outputs"]["ClusterExpiryAction"] = {"Value": "delete"}
        changed["Resources"]["Template"]["Properties"]["LaunchTemplateData"]["UserData"] = _user_data("expires")
        self.stacks.update(changed, name=NAME)
        self.deployed = changed

    def set_sizes_directly(self, sizes: Mapping[Any, GroupSize]) -> None:
        for node_type, size in sizes.items():
            self.autoscaling.update_auto_scaling_group(**size.request(group_name(NAME, node_type)))

    @property
    def autoscaling(self) -> Any:
        return self.aws.client("autoscaling")

    def names(self) -> list[str]:
        """Return the names of the groups, the master's first."""
        return [group_name(NAME, node_type) for node_type in NODE_TYPES]

    def groups(self) -> dict[str, dict[str, Any]]:
        names = {group_name(NAME, node_type): node_type for node_type in NODE_TYPES}
        found = self.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[*names])["AutoScalingGroups"]
        return {names[description["AutoScalingGroupName"]]: description for description in found}

    def sizes(self) -> dict[str, GroupSize]:
        return {
            node_type: GroupSize(
                min_size=description["MinSize"],
                desired_capacity=description["DesiredCapacity"],
                max_size=description["MaxSize"],
            )
            for node_type, description in self.groups().items()
        }

    def instances(self) -> dict[str, list[str]]:
        return {
            kind: [i["InstanceId"] for i in description["Instances"]] for kind, description in self.groups().items()
        }

    def write_members(self, _seconds: float = 0) -> None:
        """Write the members that the master's agent would see."""
        ids = self.instances()
        rows, node_types = [*ids[MASTER], *ids[WORKER]], [MASTER] * len(ids[MASTER]) + [WORKER] * len(ids[WORKER])
        if not ids[MASTER]:
            return
        found = self.aws.client("ec2").describe_instances(InstanceIds=rows)["Reservations"]
        addresses = {i["InstanceId"]: i["PrivateIpAddress"] for r in found for i in r["Instances"]}
        members: list[dict[str, Any]] = [
            {"node_index": index, "instance_id": name, "address": addresses[name], "node_type": kind, "host_key": KEY}
            for index, (name, kind) in enumerate(zip(rows, node_types, strict=True), 1)
        ]
        for member in members:
            if member["node_type"] == self.setup_fails_on:
                member |= {"setup": "failed:0123456789ab", "draining": True}
        put_members(self.stacks.physical_id("Table", name=NAME), members, region=REGION)


@dataclass(frozen=True)
class FakeProcess:
    """Result of a process that has ended."""

    returncode: int = 0


STATES: Mapping[str, Mapping[Any, GroupSize]] = {
    "as deployed": {},
    "paused": {MASTER: PAUSED, WORKER: PAUSED},
    "half paused": {WORKER: PAUSED},
    "set by hand": {WORKER: GroupSize(min_size=0, desired_capacity=4, max_size=6)},
}
"""States of a cluster of a master and two workers, by what was set since the deploy."""


def in_state(deployed: NodelessCluster, state: str) -> NodelessCluster:
    deployed.set_sizes_directly(copy.copy(STATES[state]))
    return deployed


def hold(deployed: NodelessCluster) -> tuple[str, str]:
    """Put one worker in standby and protect the other; return both."""
    deployed.set_sizes_directly({WORKER: GroupSize(min_size=0, desired_capacity=2, max_size=2)})
    standby, protected = deployed.instances()[WORKER]
    _, workers = deployed.names()
    deployed.autoscaling.enter_standby(
        AutoScalingGroupName=workers, InstanceIds=[standby], ShouldDecrementDesiredCapacity=True
    )
    deployed.autoscaling.set_instance_protection(
        AutoScalingGroupName=workers, InstanceIds=[protected], ProtectedFromScaleIn=True
    )
    return standby, protected
