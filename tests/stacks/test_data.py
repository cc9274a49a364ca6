"""Test what the nodes may do with the user's own buckets and secrets, as judged by the local AWS, and no more."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from local.policy_evaluation.policies import Decision, Permission, evaluate, parse
from stacks.nodes.roles import RECORD_WRITES
from stacks.settings.base import SettingsError
from stacks.settings.props import ClusterProps
from tests.stacks.template_parts import Template, actions, resources, statements

Synthesize = Callable[..., Template]
KEY = "arn:aws:kms:eu-west-1:123456789012:key/0123"


@pytest.fixture(scope="module")
def with_data(synthesize: Synthesize) -> Template:
    return synthesize(
        worker_count=1,
        data_buckets=("images", "team/results/ours:rw"),
        data_keys=(KEY,),
        policy_arns=("arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly",),
    )


REFERENCES = {"AWS::Partition": "aws", "AWS::URLSuffix": "amazonaws.com"}


def plain(value: Any) -> Any:
    """Return a document in which text replaces the template's references."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "Fn::Join" in value:
        return "".join(plain(part) for part in value["Fn::Join"][1])
    if value.keys() & {"Ref", "Fn::GetAtt", "Fn::Sub"}:
        return REFERENCES.get(str(value.get("Ref")), "TOKEN")
    return {key: plain(item) for key, item in value.items()}


def decide(template: Template, role: str, permission: Permission, *policies: dict[str, Any]) -> Decision:
    """Evaluate all of a role's statements, and those of the policies that the user attaches."""
    document = {"Version": "2012-10-17", "Statement": [*plain(statements(template, role)), *policies]}
    return evaluate(permission, parse(document), ())


def may(template: Template, role: str, action: str, resource: str, *, prefix: str | None = None) -> bool:
    context = {} if prefix is None else {"s3:prefix": (prefix,)}
    permission = Permission(action=action, resource=f"arn:aws:s3:::{resource}", context=context)
    return decide(template, role, permission) is Decision.ALLOWED


@pytest.mark.parametrize("role", ["RolesMaster", "RolesWorker"])
def test_nodes_read_named_buckets_and_write_only_with_rw(with_data: Template, role: str) -> None:
    assert may(with_data, role, "s3:ListBucket", "images")
    assert may(with_data, role, "s3:GetObject", "images/a/b.jpg")
    assert may(with_data, role, "s3:ListBucket", "team", prefix="results/ours/")
    for action in ("GetObject", "PutObject", "DeleteObject"):
        assert may(with_data, role, f"s3:{action}", "team/results/ours/x")
        assert not may(with_data, role, f"s3:{action}", "team/results/theirs/x")
        assert not may(with_data, role, f"s3:{action}", "team/results/ours-too/x")
        assert not may(with_data, role, f"s3:{action}", "others/x")
    assert not may(with_data, role, "s3:PutObject", "images/a/b.jpg")
    assert not may(with_data, role, "s3:DeleteObject", "images/a/b.jpg")
    for prefix in (None, "", "results/", "results/ours-too/"):
        assert not may(with_data, role, "s3:ListBucket", "team", prefix=prefix)
    assert not may(with_data, role, "s3:GetBucketPolicy", "images")


def test_key_serves_s3_alone(with_data: Template) -> None:
    for role in ("RolesMaster", "RolesWorker"):
        [key] = [s for s in statements(with_data, role) if "kms:Decrypt" in actions(s)]
        assert (actions(key), key["Resource"]) == (["kms:Decrypt", "kms:GenerateDataKey"], KEY)
        assert plain(key["Condition"]) == {"StringEquals": {"kms:ViaService": ["s3.eu-west-1.amazonaws.com"]}}


def test_former_key_of_the_cluster_is_readable_through_s3(synthesize: Synthesize) -> None:
    template = synthesize(data_keys=(KEY,))
    for role in ("RolesMaster", "RolesWorker"):
        [key] = [s for s in statements(template, role) if "kms:Decrypt" in actions(s)]
        assert (actions(key), key["Resource"]) == (["kms:Decrypt"], KEY)


def test_both_roles_get_the_policies(with_data: Template, template: Template) -> None:
    ours = [r["Properties"] for r in resources(with_data, "AWS::IAM::Role")]
    named = ["arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly"]
    assert [role["ManagedPolicyArns"] for role in ours] == [named, named]
    assert "ManagedPolicyArns" not in json.dumps(template)


FULL_ACCESS = {"Effect": "Allow", "Action": ["s3:*", "dynamodb:*"], "Resource": "*"}


@pytest.mark.parametrize("role", ["RolesMaster", "RolesWorker"])
def test_full_access_to_s3_replaces_no_program_that_nodes_run(with_data: Template, role: str) -> None:
    read = [plain(s["Resource"]) for s in statements(with_data, role) if actions(s) == ["s3:GetObject"]]
    [bundle] = re.findall(r"arn:aws:s3:::TOKEN/[0-9a-f]{64}\.zip", str(read))
    for action in ("s3:PutObject", "s3:DeleteObject"):
        for arn, expected in ((bundle, Decision.DENIED), ("arn:aws:s3:::other/a.zip", Decision.ALLOWED)):
            permission = Permission(action=action, resource=arn, context={})
            assert decide(with_data, role, permission, FULL_ACCESS) is expected


@pytest.mark.parametrize("action", RECORD_WRITES)
def test_full_access_to_dynamodb_writes_no_other_nodes_record(with_data: Template, action: str) -> None:
    [own] = [s for s in statements(with_data, "RolesWorker") if actions(s) == ["dynamodb:PutItem"]]
    table = plain(own["Resource"])
    for keys, expected in (
        (("AROA:i-1",), Decision.ALLOWED),
        (("AROA:i-2",), Decision.DENIED),
        (("AROA:i-1", "membership"), Decision.DENIED),
    ):
        context = {"aws:userid": ("AROA:i-1",), "dynamodb:LeadingKeys": keys}
        permission = Permission(action=action, resource=table, context=context)
        assert decide(with_data, "RolesWorker", permission, FULL_ACCESS) is expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"data_buckets": ("Images",)},
            "data_buckets must be the name of a general purpose S3 bucket: .* got 'Images'",
        ),
        ({"data_buckets": ("images/*",)}, "data_buckets must be name or name/prefix, .* got 'images/\\*'"),
        ({"data_buckets": ("images/${aws:userid}",)}, "data_buckets must be name or name/prefix"),
        ({"data_buckets": ("cdk-hnb659fds-assets-1-2:rw",)}, "data_buckets must be a bucket of your own, not one of"),
        (
            {"data_buckets": ("images",), "data_keys": ("alias/mine",)},
            "data_keys must be ARNs of KMS keys like arn:aws",
        ),
        (
            {"data_buckets": tuple(f"bucket-{n}" for n in range(21))},
            "^data_buckets must name at most 20 buckets, got 21$",
        ),
        (
            {"secrets": ("/team/wandb",)},
            "secrets must be ssm:PARAMETER, secretsmanager:NAME or secretsmanager:ARN, got",
        ),
        ({"secrets": ("ssm:/team/*",)}, "secrets must be ssm:PARAMETER"),
        ({"secrets": ("ssm:/${aws:userid}",)}, "secrets must be ssm:PARAMETER"),
        ({"secrets": ("secretsmanager:team-??",)}, "secrets must be ssm:PARAMETER"),
        ({"secrets": tuple(f"ssm:{n}" for n in range(21))}, "^secrets must be at most 20 secrets, got 21$"),
        ({"secret_keys": (KEY,)}, "secret_keys must be set with secrets"),
        ({"policy_arns": ("ReadOnlyAccess",)}, "policy_arns must be ARNs of managed policies like arn:aws:iam::aws"),
    ],
)
def test_unusable_setting_is_refused_in_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message) as raised:
        ClusterProps(**settings)
    assert "\n" not in str(raised.value)


def test_lists_may_be_text_and_an_administrator_is_warned_of() -> None:
    policy = "arn:aws:iam::aws:policy/AdministratorAccess"
    props = ClusterProps.from_context({"data_buckets": "a-bucket, b-bucket/x/:rw", "policy_arns": policy})
    assert [(str(b), b.is_writable) for b in props.buckets] == [("a-bucket", False), ("b-bucket/x", True)]
    assert "administrator of the account" in props.warnings()["wide-policy"]


def test_full_access_to_a_service_is_warned_of() -> None:
    arns = ("AmazonS3FullAccess", "AmazonDynamoDBFullAccess_v2", "AmazonS3ReadOnlyAccess")
    props = ClusterProps(policy_arns=tuple(f"arn:aws:iam::aws:policy/{name}" for name in arns))
    sentence = props.warnings()["full-access-policy"]
    assert sentence.startswith("policy_arns AmazonS3FullAccess, AmazonDynamoDBFullAccess_v2 lets every job")
    assert "wide-policy" not in props.warnings()


MANAGED = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:ours-AbCdEf"


def test_nodes_read_exactly_the_named_secrets_through_their_services(synthesize: Synthesize) -> None:
    secrets = ("ssm:/team/wandb", "ssm:plain", "secretsmanager:team/hub", f"secretsmanager:{MANAGED}")
    with_secrets = synthesize(secrets=secrets, secret_keys=(KEY,))
    for role in ("RolesMaster", "RolesWorker"):
        found = {tuple(actions(s)): plain(s) for s in statements(with_secrets, role)}
        parameter = "arn:aws:ssm:TOKEN:TOKEN:parameter/"
        assert found["ssm:GetParameter",]["Resource"] == [f"{parameter}plain", f"{parameter}team/wandb"]
        named = "arn:aws:secretsmanager:TOKEN:TOKEN:secret:team/hub-??????"
        assert sorted(found["secretsmanager:GetSecretValue",]["Resource"]) == sorted([named, MANAGED])
        services = [f"{service}.eu-west-1.amazonaws.com" for service in ("ssm", "secretsmanager")]
        assert found["kms:Decrypt",]["Condition"] == {"StringEquals": {"kms:ViaService": services}}
