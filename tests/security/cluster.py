"""Describe a cluster as an attacker finds it: its names, its nodes, and what each node's role grants."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import pytest
from botocore.exceptions import ClientError

from bootstrap.contract import SETUP_OUTPUT
from local.policy_evaluation.policies import Decision, Permission, Statement, evaluate, parse, single_grants
from tests.local.control_plane.harness import REGION, Aws, Stacks, session_keys, wait_for_server

ACCOUNT = "123456789012"
REFUSED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403"})
BOTH = ("master", "worker")
ASSET = re.compile(r"\b[0-9a-f]{64}\.zip\b")
"""Matches the key of an object that nodes fetch from the toolkit's bucket."""
ABUSED: dict[str, set[str]] = {"master": set(), "worker": set()}
"""Grants of each role that the tests abuse."""

Test = TypeVar("Test", bound=Callable[..., object])


def abuses(types: tuple[str, ...], *grants: str) -> Callable[[Test], Test]:
    """Mark a test with the grants that it abuses, for these node types."""
    for node_type in types:
        ABUSED[node_type] |= set(grants)
    return pytest.mark.abuses(*grants)


def refused(call: Callable[..., object], **arguments: Any) -> None:
    """Make a call that the role must not allow."""
    with pytest.raises(ClientError) as raised:
        call(**arguments)
    assert raised.value.response["Error"]["Code"] in REFUSED, raised.value


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """One action on one resource, with one value of each condition."""

    statement: Statement

    def allows_one(self, line: dict[str, Any]) -> bool:
        """Return True if a logged call needed this grant and was allowed."""
        permissions = [Permission(**permission) for permission in line["needs"]]
        return "refused" not in line and any(
            evaluate(permission, [self.statement]) is Decision.ALLOWED for permission in permissions
        )


@dataclass(frozen=True)
class RoleCluster:
    """A stack of the product."""

    aws: Aws
    name: str
    stacks: Stacks
    template: dict[str, Any]

    def create(self) -> None:
        """Create the stack up to the groups that wait for signals."""
        self.stacks.create(self.template, self.name, Capabilities=["CAPABILITY_IAM"])
        assert self._waiting(), self.stacks.status(self.name)

    def complete(self) -> None:
        """Signal for the nodes that they are ready."""
        while groups := self._waiting():
            for logical_id, physical_id in groups:
                for instance_id in self.members(physical_id):
                    self.stacks.signal(logical_id, instance_id, name=self.name)
        wait_for_server(lambda: self.stacks.status(self.name) == "CREATE_COMPLETE", "the stack")

    def _waiting(self) -> list[tuple[str, str]]:
        resources = self.stacks.cloudformation.describe_stack_resources(StackName=self.name)["StackResources"]
        return [
            (str(resource["LogicalResourceId"]), str(resource["PhysicalResourceId"]))
            for resource in resources
            if resource["ResourceType"] == "AWS::AutoScaling::AutoScalingGroup"
            and resource["ResourceStatus"] == "CREATE_IN_PROGRESS"
        ]

    def logical_id(self, resource_type: str, part: str) -> str:
        (logical_id,) = [
            name
            for name, resource in self.template["Resources"].items()
            if resource["Type"] == resource_type and part in name
        ]
        return str(logical_id)

    def _physical_id(self, resource_type: str, part: str) -> str:
        return self.stacks.physical_id(self.logical_id(resource_type, part), self.name)

    def group(self, node_type: str) -> str:
        return f"{self.name}-{node_type}"

    def members(self, group: str) -> list[str]:
        groups = self.aws.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[group])
        return [str(member["InstanceId"]) for member in groups["AutoScalingGroups"][0]["Instances"]]

    @cached_property
    def names(self) -> dict[str, str]:
        """Return the names and IDs for which an attacker looks, by label."""
        addresses = self.aws.client("ec2").describe_addresses()["Addresses"]
        public = self._physical_id("AWS::EC2::EIP", "MasterAddress")
        return {
            "TABLE": self._physical_id("AWS::DynamoDB::Table", "Storage"),
            "LOGS": self._physical_id("AWS::Logs::LogGroup", "Logs"),
            "STACK": self.stacks.cloudformation.describe_stacks(StackName=self.name)["Stacks"][0]["StackId"],
            "BUCKET": self._physical_id("AWS::S3::Bucket", "Checkpoints"),
            "ADDRESS": next(address["AllocationId"] for address in addresses if address["PublicIp"] == public),
        }

    @cached_property
    def setup(self) -> str:
        """Return the key of the user's setup, which nodes fetch and run as root."""
        [key] = ASSET.findall(json.dumps(self.template["Outputs"][SETUP_OUTPUT]))
        return str(key)

    @cached_property
    def bundle(self) -> str:
        """Return the key of the bundle, which nodes fetch and run as root."""
        keys: set[str] = set(ASSET.findall(json.dumps(self.template)))
        [bundle] = keys - {self.setup}
        return bundle

    def node(self, node_type: str) -> "Node":
        """Return the group's first node, with its role's credentials."""
        role = self.aws.client("iam").get_role(RoleName=self._physical_id("AWS::IAM::Role", node_type.title()))["Role"]
        instance_id = self.members(self.group(node_type))[0]
        return Node(cluster=self, type=node_type, instance_id=instance_id, role=role)


@dataclass(frozen=True)
class Node:
    """A node that an attacker has taken over."""

    cluster: RoleCluster
    type: str
    instance_id: str
    role: dict[str, Any]

    @cached_property
    def keys(self) -> dict[str, str]:
        return session_keys(self.cluster.aws, self.role["Arn"], self.instance_id)

    def client(self, service: str) -> Any:
        return self.cluster.aws.client(service, **self.keys)

    def record_id(self, instance_id: str = "") -> str:
        """Return the key of a node's record in the table, by default its own."""
        return f"{self.role['RoleId']}:{instance_id or self.instance_id}"

    def lines(self) -> list[dict[str, Any]]:
        """Return the request log's entries of its role."""
        lines = map(json.loads, self.cluster.aws.request_log.read_text().splitlines())
        return [line for line in lines if line.get("caller", {}).get("role_arn") == self.role["Arn"]]

    @cached_property
    def grants(self) -> dict[str, Grant]:
        """Return the permissions of the role, by a description that is the same in every cluster."""
        iam, name = self.cluster.aws.client("iam"), self.role["RoleName"]
        assert iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"] == []
        names = iam.list_role_policies(RoleName=name)["PolicyNames"]
        documents = [
            iam.get_role_policy(RoleName=name, PolicyName=policy_name)["PolicyDocument"] for policy_name in names
        ]
        statements = [statement for document in documents for statement in parse(document) if statement.allows]
        singles = [single for statement in statements for single in single_grants(statement)]
        return {self._words(single): Grant(statement=single) for single in singles}

    def _words(self, single: Statement) -> str:
        (action,), (resource,) = single.actions, single.resources
        on = "all but " if single.is_not_resource else ""
        where = [f"{condition.key.rsplit('/', 1)[-1]} {' '.join(condition.values)}" for condition in single.conditions]
        return ", ".join([f"{action} on {on}{self._labeled(resource)}", *map(self._labeled, where)])

    def _labeled(self, text: str) -> str:
        cluster = self.cluster
        labels = {value: label for label, value in cluster.names.items()} | {
            cluster.group(self.type): "OWN-GROUP",
            cluster.bundle: "BUNDLE",
            cluster.setup: "SETUP",
            f":{REGION}:{ACCOUNT}:": ":",
            f"-{ACCOUNT}-{REGION}": "",
        }
        for value, label in labels.items():
            text = text.replace(value, label)
        return text.removeprefix("arn:aws:")
