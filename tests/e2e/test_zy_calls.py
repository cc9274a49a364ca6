"""Every AWS call that a node made is allowed by its role, and everything that a role allows was called.

The local AWS enforces no policies. It records each call with the policies that its role had at that moment, and these
are judged here by rules of our own. Named to run after the tests that make nodes call AWS, and before the cluster's
end; alone it judges the calls of a deploy.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.e2e.conftest import STACK, Cluster, aliases, stack_outputs
from tests.e2e.test_user_data import References
from tests.policies.evaluate import Request, Statement, is_allowed, parse
from tests.policies.recorded import LEADING_KEYS, Call, as_on_aws, read_calls

TYPES = ("Master", "Worker")
ACCOUNT = "123456789012"


class PolicyReferences(References):
    """Also the attributes that policies refer to."""

    def attribute(self, name: str, attribute: str) -> str:
        if attribute != "Arn":
            return super().attribute(name, attribute)
        physical = self.ref(name)
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
    refused = [call for call in calls if not is_allowed(call.statements, call.request)]
    assert sorted({f"{call.role_arn} {call.request}" for call in refused}) == []


@pytest.mark.parametrize("node_type", TYPES)
def test_nothing_is_allowed_that_no_node_calls(roles: dict[str, Role], calls: list[Call], node_type: str) -> None:
    role = roles[node_type]
    requests = [call.request for call in calls if call.role_arn == role.arn]
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


def _on_table(action: str, *keys: str) -> tuple[str, str, tuple[str, ...]]:
    return f"dynamodb:{action}", "TABLE", keys


@pytest.mark.parametrize(
    ("node_type", "wish"),
    [
        pytest.param("Worker", _on_table("PutItem", "membership"), id="worker names the members"),
        pytest.param("Worker", _on_table("PutItem", "OWN-2"), id="worker writes another's record"),
        pytest.param("Worker", _on_table("PutItem", "OWN", "OWN-2"), id="worker writes another's record with its own"),
        pytest.param("Worker", _on_table("GetItem", "OWN-2"), id="worker reads another's record"),
        pytest.param("Worker", _on_table("Scan"), id="worker reads the table"),
        pytest.param("Worker", ("ec2:DescribeInstances", "*", ()), id="worker looks at instances"),
        pytest.param("Master", _on_table("PutItem", "OWN-2"), id="master writes a node's record"),
        pytest.param("Master", _on_table("DeleteItem", "membership"), id="master deletes the members"),
        pytest.param("Master", ("ec2:TerminateInstances", "*", ()), id="master ends instances"),
        pytest.param("Master", ("s3:GetObject", "arn:aws:s3:::BUCKET/other.zip", ()), id="another object"),
        pytest.param("Master", ("s3:PutObject", "OBJECT", ()), id="the bundle itself"),
        pytest.param("Worker", ("cloudformation:SignalResource", "STACK-2", ()), id="another stack"),
        pytest.param("Worker", ("s3:ListBucket", "arn:aws:s3:::BUCKET", ()), id="what else the bundle's bucket has"),
        pytest.param("Worker", ("logs:PutLogEvents", "LOGS-2:log-stream:i-1", ()), id="another log group"),
    ],
)
def test_fails_when_a_node_wants_more(
    roles: dict[str, Role], calls: list[Call], node_type: str, wish: tuple[str, str, tuple[str, ...]]
) -> None:
    role, (action, resource, keys) = roles[node_type], wish
    outputs = stack_outputs()
    stack = boto3.client("cloudformation").describe_stacks(StackName=STACK)["Stacks"][0]["StackId"]
    bundle = next(r for call in calls if (r := call.request.resource).startswith("arn:aws:s3:::cdk-"))
    own = f"{role.role_id}:i-0123456789abcdef0"
    for name, value in {
        "TABLE": f"arn:aws:dynamodb:us-east-1:{ACCOUNT}:table/{outputs['ClusterTable']}",
        "STACK": stack,
        "LOGS": f"arn:aws:logs:us-east-1:{ACCOUNT}:log-group:{outputs['ClusterLogGroup']}",
        "OBJECT": bundle,
        "BUCKET": bundle.split(":::")[1].split("/")[0],
    }.items():
        resource = resource.replace(name, value)
    context = {LEADING_KEYS: tuple(key.replace("OWN", own) for key in keys)} if keys else {}
    request = Request(action=action, resource=resource, user_id=own, context=context)
    assert not is_allowed(role.statements, request)
