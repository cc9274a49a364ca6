"""Check what the nodes' roles allow."""

import json
import re
from fnmatch import fnmatch
from typing import Any

import pytest

from bootstrap import contract
from stacks.nodes.roles import UNSCOPED_ACTIONS
from tests.stacks.synthesis import Synthesize
from tests.stacks.template_parts import actions, statements

Template = dict[str, Any]


def allowed(template: Template, role: str) -> list[dict[str, Any]]:
    return [statement for statement in statements(template, role) if statement["Effect"] == "Allow"]


def objects_of_the_clusters_bucket(statement: dict[str, Any]) -> bool:
    if "s3:PutObject" not in actions(statement):
        return False
    arn, rest = statement["Resource"]["Fn::Join"][1]
    return rest == "/*" and "Checkpoints" in arn["Fn::GetAtt"][0]


def is_limited_to_own_group(statement: dict[str, Any], role: str) -> bool:
    """Return True if the star stands for a group's id, or for the instances of a group that a condition names."""
    group = "deeplearning-master" if role == "RolesMaster" else "deeplearning-worker"
    if "autoscaling:CompleteLifecycleAction" in actions(statement):
        resource = str(statement["Resource"]["Fn::Join"][1][-1])
        return resource == f":autoScalingGroup:*:autoScalingGroupName/{group}"
    condition = {"StringEquals": {"aws:ResourceTag/aws:autoscaling:groupName": "deeplearning-master"}}
    return actions(statement) == ["ec2:AssociateAddress"] and statement.get("Condition") == condition


def test_only_the_describe_calls_have_a_wildcard_resource(template: Template) -> None:
    for role in ("RolesMaster", "RolesWorker"):
        for statement in statements(template, role):
            if statement["Effect"] == "Deny":
                continue
            assert not any("*" in action for action in actions(statement))
            if objects_of_the_clusters_bucket(statement) or is_limited_to_own_group(statement, role):
                continue
            if "*" in json.dumps(statement["Resource"]):
                assert role == "RolesMaster"
                assert tuple(sorted(actions(statement))) == tuple(sorted(UNSCOPED_ACTIONS))


def test_roles_hold_exactly_what_the_agent_needs(template: Template) -> None:
    common = {
        "s3:GetObject",
        "s3:PutObject",
        "s3:DeleteObject",
        "s3:ListBucket",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
        "cloudformation:SignalResource",
        "dynamodb:PutItem",
        "dynamodb:GetItem",
        "autoscaling:CompleteLifecycleAction",
        "autoscaling:RecordLifecycleActionHeartbeat",
        "autoscaling:SetInstanceHealth",
    }
    master = {"dynamodb:BatchGetItem", "ec2:AssociateAddress", *UNSCOPED_ACTIONS}
    assert {a for s in allowed(template, "RolesWorker") for a in actions(s)} == common
    assert {a for s in allowed(template, "RolesMaster") for a in actions(s)} == common | master


KEEPS_VERSIONS = {
    "s3:DeleteObjectVersion",
    "s3:PutBucketVersioning",
    "s3:PutLifecycleConfiguration",
    "s3:PutBucketPolicy",
    "s3:DeleteBucketPolicy",
    "s3:BypassGovernanceRetention",
    "s3:PutObjectVersionTagging",
    "s3:DeleteBucket",
}
"""Actions that delete an old version or let it expire."""


@pytest.mark.parametrize("bucket", [None, "kept"])
def test_no_node_can_delete_a_version_of_an_object(synthesize: Synthesize, bucket: str | None) -> None:
    template = synthesize(worker_count=1, bucket=bucket)
    for role in ("RolesMaster", "RolesWorker"):
        allowed = [a for s in statements(template, role) if s["Effect"] == "Allow" for a in actions(s)]
        assert not [(a, kept) for a in allowed for kept in KEEPS_VERSIONS if fnmatch(kept.lower(), a.lower())]


def test_nodes_reach_the_adopted_bucket_and_no_other(synthesize: Synthesize) -> None:
    template = synthesize(worker_count=1, bucket="kept")
    for role in ("RolesMaster", "RolesWorker"):
        reached = {
            statement["Resource"]["Fn::Join"][1][-1]
            for statement in statements(template, role)
            if statement["Effect"] == "Allow"
            for action in actions(statement)
            if action in ("s3:ListBucket", "s3:PutObject", "s3:DeleteObject")
        }
        assert reached == {":s3:::kept", ":s3:::kept/*"}


def test_worker_writes_only_its_own_record_and_reads_only_what_the_master_writes(template: Template) -> None:
    keys = {
        action: statement["Condition"]["ForAllValues:StringEquals"]["dynamodb:LeadingKeys"]
        for statement in allowed(template, "RolesWorker")
        for action in actions(statement)
        if action.startswith("dynamodb:")
    }
    assert keys == {
        "dynamodb:PutItem": ["${aws:userid}"],
        "dynamodb:GetItem": [
            contract.MEMBERSHIP_ID,
            contract.GENERATION_ID,
            contract.MXNET_ENVIRONMENT_RECORD_ID,
            contract.PAUSE_ID,
        ],
    }


def test_node_reads_one_object_of_the_bootstrap_bucket(template: Template) -> None:
    for role in ("RolesMaster", "RolesWorker"):
        [s3] = [s for s in statements(template, role) if actions(s) == ["s3:GetObject"]]
        assert re.fullmatch(r"/[0-9a-f]{64}\.zip", s3["Resource"]["Fn::Join"][1][-1])


def test_worker_can_neither_replace_nor_remove_an_environment(template: Template) -> None:
    def kept(role: str) -> list[list[str]]:
        return [
            sorted(actions(s))
            for s in statements(template, role)
            if s["Effect"] == "Deny" and f"/{contract.MXNET_ARCHIVES_PREFIX}*" in json.dumps(s["Resource"])
        ]

    assert kept("RolesWorker") == [["s3:Delete*", "s3:Put*", "s3:RestoreObject"]]
    assert kept("RolesMaster") == []


def test_only_the_master_may_write_the_trusted_environment(template: Template) -> None:
    def writable(role: str) -> list[str]:
        return [
            key
            for statement in allowed(template, role)
            if "dynamodb:PutItem" in actions(statement)
            for key in statement["Condition"]["ForAllValues:StringEquals"]["dynamodb:LeadingKeys"]
        ]

    assert contract.MXNET_ENVIRONMENT_RECORD_ID in writable("RolesMaster")
    assert writable("RolesWorker") == ["${aws:userid}"]


def granted(template: Template, role: str) -> set[tuple[str, str]]:
    """Return each action with its resource; the CDK merges statements."""
    return {
        (action, json.dumps(statement["Resource"]))
        for statement in statements(template, role)
        for action in actions(statement)
    }


def test_private_nodes_have_only_the_session_permissions(template: Template, synthesize: Synthesize) -> None:
    private = synthesize(private=True)
    for role in ("RolesMaster", "RolesWorker"):
        before, after = granted(template, role), granted(private, role)
        [report] = [(action, on) for action, on in after - before if action == "ssm:UpdateInstanceInformation"]
        assert report[1].endswith(':instance/*"]]}')
        channels = [f"ssmmessages:{verb}{kind}Channel" for verb in ("Create", "Open") for kind in ("Control", "Data")]
        assert after - before == {report, *((channel, '"*"') for channel in channels)}
    assert "ManagedPolicyArns" not in json.dumps(private)


def test_worker_neither_reads_nor_writes_the_jobs_that_a_new_master_runs(template: Template) -> None:
    def denied(role: str) -> list[list[str]]:
        return [
            sorted(actions(s))
            for s in statements(template, role)
            if s["Effect"] == "Deny" and f"/{contract.JOBS_PREFIX}*" in json.dumps(s["Resource"])
        ]

    assert denied("RolesWorker") == [["s3:*"]]
    assert denied("RolesMaster") == []
