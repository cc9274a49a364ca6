"""Test that no node called more than its role allows, and that every permission of a role was used.

The local AWS refuses what a role does not allow, and records what each call needed. These tests run after those that
make nodes call AWS, and before the cluster's end. On a fresh cluster, some permissions are unused because no node has
left yet (healing/test_healing.py makes both types leave). Calls that tests make on a node's behalf to see them refused
have an application id and do not count. tests/security checks what an attacker could do with a role.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest

from bootstrap import contract
from local.policy_evaluation.policies import Decision, Permission, Statement, evaluate, parse, single_grants
from tests.e2e.support.deployed_cluster import STACK, DeployedCluster, aliases
from tests.e2e.support.template_references import References

TYPES = ("Master", "Worker")
REGION = "AWS_DEFAULT_REGION=us-east-1"
NODE_SESSION = re.compile(r"[^:]+:i-[0-9a-f]+")
"""Matches a node's session, which EC2 names by the instance's id."""


class PolicyReferences(References):
    """Resolves also the attributes to which policies refer."""

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
        """Return a document with its references resolved."""
        if isinstance(value, list):
            return [self.resolve_all(item) for item in value]
        if isinstance(value, dict) and not any(key == "Ref" or key.startswith("Fn::") for key in value):
            return {key: self.resolve_all(item) for key, item in value.items()}
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
def roles(cluster: DeployedCluster) -> dict[str, Role]:
    """Return the roles by node type; nothing else may grant them permissions."""
    body = boto3.client("cloudformation").get_template(StackName=STACK)["TemplateBody"]
    template = body if isinstance(body, dict) else json.loads(body)
    references, roles_by_arn = PolicyReferences(), {}
    for name, resource in template["Resources"].items():
        assert resource["Type"] not in ("AWS::IAM::RolePolicy", "AWS::IAM::ManagedPolicy", "AWS::IAM::User")
        if resource["Type"] != "AWS::IAM::Role":
            continue
        assert resource["Properties"].keys() <= {"AssumeRolePolicyDocument", "Tags"}
        role = boto3.client("iam").get_role(RoleName=references.ref(name))["Role"]
        (node_type,) = [node_type for node_type in TYPES if node_type in name]
        documents = tuple(references.resolve_all(document) for document in _documents(template, name))
        roles_by_arn[node_type] = Role(arn=role["Arn"], role_id=role["RoleId"], documents=documents)
    assert roles_by_arn.keys() == set(TYPES)
    return roles_by_arn


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
def calls(cluster: DeployedCluster, roles: dict[str, Role]) -> list[dict[str, Any]]:
    """Use the bucket like jobs, then return all calls of nodes, including earlier clusters'."""
    for alias in (aliases()[0], aliases()[-1]):
        assert cluster.on(alias, USE_THE_BUCKET).splitlines()[-1] == "contents"
    log = Path(os.environ["LOCAL_AWS_DIR"], "log", "requests.jsonl")
    # The last line may be growing.
    whole, _, _ = log.read_text().rpartition("\n")
    return [line for line in map(json.loads, whole.splitlines()) if _counts(line)]


def _counts(line: Mapping[str, Any]) -> bool:
    """Return True if a node made the call itself.

    A role without policies is being deleted; its nodes have been terminated, and only the local AWS still runs them for
    a moment.
    """
    caller = line.get("caller", {"user_id": "", "policies": 0})
    return bool(NODE_SESSION.fullmatch(caller["user_id"]) and caller["policies"]) and "application" not in line


@pytest.mark.parametrize("node_type", TYPES)
def test_active_policies_match_the_template(roles: dict[str, Role], node_type: str) -> None:
    iam, role = boto3.client("iam"), roles[node_type]
    name = role.arn.rsplit("/", 1)[1]
    names = iam.list_role_policies(RoleName=name)["PolicyNames"]
    in_force = [iam.get_role_policy(RoleName=name, PolicyName=policy_name)["PolicyDocument"] for policy_name in names]
    assert in_force == list(role.documents)
    assert iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"] == []


def test_nodes_call_nothing_that_their_role_does_not_allow(roles: dict[str, Role], calls: list[dict[str, Any]]) -> None:
    assert {role.arn for role in roles.values()} <= {call["caller"]["role_arn"] for call in calls}
    assert sorted({f"{call['caller']} {call['refused']}" for call in calls if "refused" in call}) == []


def is_for_mxnet(grant: Statement) -> bool:
    """Return True if only nodes with the setting ``frameworks`` need it, which this cluster lacks."""
    return any(contract.MXNET_ENVIRONMENT_RECORD_ID in condition.values for condition in grant.conditions)


@pytest.mark.parametrize("node_type", TYPES)
def test_nothing_is_allowed_that_no_node_calls(
    roles: dict[str, Role], calls: list[dict[str, Any]], node_type: str
) -> None:
    role = roles[node_type]
    permissions = [
        Permission(**permission)
        for call in calls
        if call["caller"]["role_arn"] == role.arn
        for permission in call["needs"]
    ]
    grants = [grant for statement in role.statements if statement.allows for grant in single_grants(statement)]
    uncalled = [
        grant
        for grant in grants
        if not any(evaluate(permission, [grant]) is Decision.ALLOWED for permission in permissions)
    ]
    assert len(uncalled) < len(grants)
    assert [grant for grant in uncalled if not is_for_mxnet(grant)] == []


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("aws ec2 describe-instances", "(UnauthorizedOperation)"),
        ("aws s3api list-object-versions --bucket $DEEPLEARNING_BUCKET", "(AccessDenied)"),
        ("aws dynamodb list-tables", "(AccessDeniedException)"),
    ],
)
def test_refused_node_gets_aws_error(cluster: DeployedCluster, command: str, message: str) -> None:
    answer = cluster.on(aliases()[-1], f"export {REGION} AWS_SDK_UA_APP_ID=abuse; {command} 2>&1 || true")
    assert message in answer
    assert re.search(r"User: arn:aws:sts::\d+:assumed-role/\S+/i-[0-9a-f]+ is not authorized to perform: ", answer)


def test_invented_access_key_is_refused(cluster: DeployedCluster) -> None:
    keys = f"{REGION} AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local"
    answer = cluster.on(aliases()[-1], f"{keys} aws dynamodb list-tables 2>&1 || true")
    assert "(UnrecognizedClientException)" in answer
