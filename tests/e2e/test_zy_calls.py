"""Every AWS call that a node made is allowed by its role, and everything that a role allows was called.

The local AWS enforces no policies. It records each call with the policies that its role had at that moment, and these
are judged here by rules of our own. Named to run after the tests that make nodes call AWS, and before the cluster's
end; alone it judges the calls of a deploy, and finds that no node has left (test_zw_healing.py makes both types leave).
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.e2e.conftest import STACK, Cluster, aliases, stack_outputs
from tests.e2e.test_user_data import References
from tests.policies.evaluate import Request, Statement, is_allowed, parse
from tests.policies.recorded import GROUP_OF_INSTANCE, LEADING_KEYS, Call, as_on_aws, read_calls

TYPES = ("Master", "Worker")
ACCOUNT = "123456789012"
INSTANCE_ID = "i-0123456789abcdef0"


class PolicyReferences(References):
    """Also the attributes that policies refer to."""

    def attribute(self, name: str, attribute: str) -> str:
        physical = self.ref(name)
        if attribute != "Arn":
            return super().attribute(name, attribute)
        if "LogGroup" in name:
            groups = boto3.client("logs").describe_log_groups(logGroupNamePrefix=physical)["logGroups"]
            arn = next(group["arn"] for group in groups if group["logGroupName"] == physical)
            return f"{arn.removesuffix(':*')}:*"
        if "Bucket" in name:
            return f"arn:aws:s3:::{physical}"
        return boto3.client("dynamodb").describe_table(TableName=physical)["Table"]["TableArn"]

    def resolve_all(self, value: Any) -> Any:
        """A document with its references filled in."""
        if isinstance(value, list):
            return [self.resolve_all(each) for each in value]
        if isinstance(value, dict) and not any(key == "Ref" or key.startswith("Fn::") for key in value):
            return {key: self.resolve_all(each) for key, each in value.items()}
        return self.resolve(value)


def allocation_id(public_address: str) -> str:
    return str(boto3.client("ec2").describe_addresses(PublicIps=[public_address])["Addresses"][0]["AllocationId"])


@dataclass(frozen=True, kw_only=True, slots=True)
class Role:
    """A role of the deployed template."""

    arn: str
    role_id: str
    documents: tuple[dict[str, Any], ...]

    @property
    def statements(self) -> tuple[Statement, ...]:
        return tuple(statement for document in self.documents for statement in parse(document))


@pytest.fixture(scope="module")
def roles(cluster: Cluster) -> dict[str, Role]:
    """By type of node. Whatever else a role could get its permissions from must not be there."""
    body = boto3.client("cloudformation").get_template(StackName=STACK)["TemplateBody"]
    template = body if isinstance(body, dict) else json.loads(body)
    references, found = PolicyReferences(), {}
    for name, resource in template["Resources"].items():
        assert resource["Type"] not in ("AWS::IAM::RolePolicy", "AWS::IAM::ManagedPolicy", "AWS::IAM::User")
        if resource["Type"] != "AWS::IAM::Role":
            continue
        assert resource["Properties"].keys() <= {"AssumeRolePolicyDocument", "Tags"}
        role = boto3.client("iam").get_role(RoleName=references.ref(name))["Role"]
        (node_type,) = [each for each in TYPES if each in name]
        documents = tuple(references.resolve_all(each) for each in _documents(template, name))
        found[node_type] = Role(arn=role["Arn"], role_id=role["RoleId"], documents=documents)
    assert found.keys() == set(TYPES)
    return found


def _documents(template: dict[str, Any], role: str) -> Iterator[Any]:
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::IAM::Policy" and {"Ref": role} in resource["Properties"]["Roles"]:
            yield resource["Properties"]["PolicyDocument"]


USE_THE_BUCKET = """
set -e
object=s3://$DEEPLEARNING_BUCKET/$(hostname)
echo contents | aws s3 cp - "$object"
aws s3 ls "$object"
aws s3 cp "$object" -
aws s3 rm --quiet "$object"
"""


@pytest.fixture(scope="module")
def calls(cluster: Cluster, roles: dict[str, Role]) -> list[Call]:
    """Those of nodes of earlier clusters too. The bucket is there for jobs; the agent does not touch it."""
    for alias in (aliases()[0], aliases()[-1]):
        assert cluster.on(alias, USE_THE_BUCKET).splitlines()[-1] == "contents"
    return list(read_calls(Path(os.environ["LOCAL_AWS_DIR"], "log", "requests.jsonl")))


@pytest.mark.parametrize("node_type", TYPES)
def test_policies_in_force_are_the_templates(roles: dict[str, Role], node_type: str) -> None:
    iam, role = boto3.client("iam"), roles[node_type]
    name = role.arn.rsplit("/", 1)[1]
    names = iam.list_role_policies(RoleName=name)["PolicyNames"]
    in_force = [iam.get_role_policy(RoleName=name, PolicyName=each)["PolicyDocument"] for each in names]
    assert [as_on_aws(document) for document in in_force] == list(role.documents)
    assert iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"] == []


def test_nodes_call_nothing_that_their_role_does_not_allow(roles: dict[str, Role], calls: list[Call]) -> None:
    assert {role.arn for role in roles.values()} <= {call.role_arn for call in calls}
    assert sorted({f"{call.role_arn} {request}" for call in calls for request in call.refused}) == []


@pytest.mark.parametrize("node_type", TYPES)
def test_nothing_is_allowed_that_no_node_calls(roles: dict[str, Role], calls: list[Call], node_type: str) -> None:
    role = roles[node_type]
    requests = [request for call in calls if call.role_arn == role.arn for request in call.requests]
    grants = [grant for statement in role.statements for grant in _single_grants(statement)]
    assert grants
    assert [grant for grant in grants if not any(is_allowed([grant], request) for request in requests)] == []


def _single_grants(statement: Statement) -> Iterator[Statement]:
    """The statement taken apart: one action on one resource, with one value of each condition."""
    for action in statement.actions:
        for resource in statement.resources:
            alone = replace(statement, actions=(action,), resources=(resource,))
            if not statement.conditions:
                yield alone
            for index, condition in enumerate(statement.conditions):
                for value in condition.values:
                    one = replace(condition, values=(value,))
                    others = (*statement.conditions[:index], one, *statement.conditions[index + 1 :])
                    yield replace(alone, conditions=others)


Wish = tuple[str, str, Mapping[str, tuple[str, ...]]]
"""Action, resource and values of condition keys, with the cluster's own names in capitals."""


def _on_table(action: str, *keys: str) -> Wish:
    return f"dynamodb:{action}", "TABLE", {LEADING_KEYS: keys} if keys else {}


def _on_group(action: str, name: str) -> Wish:
    return f"autoscaling:{action}", f"GROUPS:0-1:autoScalingGroupName/{name}", {}


def _address(resource: str, *groups: str) -> Wish:
    return "ec2:AssociateAddress", resource, {GROUP_OF_INSTANCE: groups} if groups else {}


WISHES = [
    pytest.param("Worker", _on_table("PutItem", "membership"), id="worker names the members"),
    pytest.param("Worker", _on_table("PutItem", "generation"), id="worker names the generation"),
    pytest.param("Worker", _on_table("PutItem", "OWN-2"), id="worker writes another's record"),
    pytest.param("Worker", _on_table("PutItem", "OWN", "OWN-2"), id="worker writes another's record with its own"),
    pytest.param("Worker", _on_table("GetItem", "OWN-2"), id="worker reads another's record"),
    pytest.param("Worker", _on_table("Scan"), id="worker reads the table"),
    pytest.param("Worker", ("ec2:DescribeInstances", "*", {}), id="worker looks at instances"),
    pytest.param("Worker", _address("ADDRESS"), id="worker takes the address"),
    pytest.param("Worker", _address("INSTANCE", "WORKERS"), id="worker takes an address"),
    pytest.param("Worker", _address("INSTANCE", "MASTERS"), id="worker gives the master an address"),
    pytest.param("Worker", _on_group("SetInstanceHealth", "MASTERS"), id="worker calls the master ill"),
    pytest.param("Worker", _on_group("CompleteLifecycleAction", "MASTERS"), id="worker lets the master go"),
    pytest.param("Worker", _on_group("RecordLifecycleActionHeartbeat", "MASTERS"), id="worker holds the master"),
    pytest.param("Master", _on_table("PutItem", "OWN-2"), id="master writes a node's record"),
    pytest.param("Master", _on_table("PutItem", "generation", "OWN-2"), id="master writes it with its own"),
    pytest.param("Master", _on_table("UpdateItem", "generation"), id="master changes the generation in place"),
    pytest.param("Master", _on_table("DeleteItem", "membership"), id="master deletes the members"),
    pytest.param("Master", ("ec2:TerminateInstances", "*", {}), id="master ends instances"),
    pytest.param("Master", _address("ADDRESS-2"), id="master takes another address"),
    pytest.param("Master", _address("INSTANCE", "WORKERS"), id="master gives a worker its address"),
    pytest.param("Master", _address("INSTANCE"), id="master gives another instance its address"),
    pytest.param("Master", ("ec2:DisassociateAddress", "ADDRESS", {}), id="master gives its address up"),
    pytest.param("Master", _on_group("SetInstanceHealth", "WORKERS"), id="master calls a worker ill"),
    pytest.param("Master", _on_group("SetInstanceHealth", "MASTERS-2"), id="another cluster's health"),
    pytest.param("Master", _on_group("SetInstanceHealth", "*"), id="health of an instance without a group"),
    pytest.param("Master", _on_group("CompleteLifecycleAction", "WORKERS"), id="master lets a worker go"),
    pytest.param("Master", ("s3:GetObject", "arn:aws:s3:::BUCKET/other.zip", {}), id="another object"),
    pytest.param("Master", ("s3:PutObject", "OBJECT", {}), id="the bundle itself"),
    pytest.param("Worker", ("cloudformation:SignalResource", "STACK-2", {}), id="another stack"),
    pytest.param("Worker", ("s3:ListBucket", "arn:aws:s3:::BUCKET", {}), id="what else the bundle's bucket has"),
    pytest.param("Worker", ("logs:PutLogEvents", "LOGS-2:log-stream:i-1", {}), id="another log group"),
]

NEEDS = [
    pytest.param("Worker", _on_table("PutItem", "OWN"), id="worker writes its record"),
    pytest.param("Worker", _on_table("GetItem", "generation"), id="worker asks for the generation"),
    pytest.param("Worker", _on_group("SetInstanceHealth", "WORKERS"), id="worker calls itself ill"),
    pytest.param("Worker", _on_group("CompleteLifecycleAction", "WORKERS"), id="worker lets itself go"),
    pytest.param("Worker", _on_group("RecordLifecycleActionHeartbeat", "WORKERS"), id="worker asks for time"),
    pytest.param("Worker", ("logs:PutLogEvents", "LOGS:log-stream:i-1", {}), id="the cluster's log group"),
    pytest.param("Worker", ("cloudformation:SignalResource", "STACK", {}), id="the cluster's stack"),
    pytest.param("Master", _on_table("PutItem", "generation"), id="master names the generation"),
    pytest.param("Master", _on_group("SetInstanceHealth", "MASTERS"), id="master calls itself ill"),
    pytest.param("Master", _address("ADDRESS"), id="master takes the address"),
    pytest.param("Master", _address("INSTANCE", "MASTERS"), id="master gives itself an address"),
    pytest.param("Master", ("s3:GetObject", "OBJECT", {}), id="the bundle"),
]
"""Each differs in one thing from a wish: so a wish is refused for that, and not for how it is worded."""


@pytest.fixture(scope="module")
def names(calls: list[Call]) -> dict[str, str]:
    """What the capitals of wishes stand for."""
    outputs, formation = stack_outputs(), boto3.client("cloudformation")
    # The first is that of the settings with which the cluster ends; a newer release may have come between.
    resources = (request.resource for call in calls for request in call.requests)
    bundle = next(each for each in resources if each.startswith("arn:aws:s3:::cdk-"))
    return {
        "TABLE": f"arn:aws:dynamodb:us-east-1:{ACCOUNT}:table/{outputs['ClusterTable']}",
        "STACK": formation.describe_stacks(StackName=STACK)["Stacks"][0]["StackId"],
        "LOGS": f"arn:aws:logs:us-east-1:{ACCOUNT}:log-group:{outputs['ClusterLogGroup']}",
        "GROUPS": f"arn:aws:autoscaling:us-east-1:{ACCOUNT}:autoScalingGroup",
        "MASTERS": outputs["MasterAutoScalingGroup"],
        "WORKERS": outputs["WorkerAutoScalingGroup"],
        "ADDRESS": f"arn:aws:ec2:us-east-1:{ACCOUNT}:elastic-ip/{allocation_id(_master_address())}",
        "INSTANCE": f"arn:aws:ec2:us-east-1:{ACCOUNT}:instance/{INSTANCE_ID}",
        "OBJECT": bundle,
        "BUCKET": bundle.split(":::")[1].split("/")[0],
    }


def _master_address() -> str:
    """The workers' way out has an address too."""
    resources = boto3.client("cloudformation").describe_stack_resources(StackName=STACK)["StackResources"]
    (address,) = [
        str(each["PhysicalResourceId"])
        for each in resources
        if each["ResourceType"] == "AWS::EC2::EIP" and "MasterAddress" in each["LogicalResourceId"]
    ]
    return address


def _is_granted(role: Role, names: dict[str, str], wish: Wish) -> bool:
    own = f"{role.role_id}:{INSTANCE_ID}"
    all_names = {**names, "OWN": own}

    def filled(text: str) -> str:
        return re.sub("|".join(all_names), lambda found: all_names[found[0]], text)

    action, resource, keys = wish
    context = {key: tuple(filled(value) for value in values) for key, values in keys.items()}
    request = Request(action=action, resource=filled(resource), user_id=own, context=context)
    return is_allowed(role.statements, request)


@pytest.mark.parametrize(("node_type", "wish"), WISHES)
def test_fails_when_a_node_wants_more(
    roles: dict[str, Role], names: dict[str, str], node_type: str, wish: Wish
) -> None:
    assert not _is_granted(roles[node_type], names, wish)


@pytest.mark.parametrize(("node_type", "need"), NEEDS)
def test_does_not_fail_when_a_node_wants_what_it_needs(
    roles: dict[str, Role], names: dict[str, str], node_type: str, need: Wish
) -> None:
    assert _is_granted(roles[node_type], names, need)
