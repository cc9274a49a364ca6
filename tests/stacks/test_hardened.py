"""Check a hardened cluster with cdk-nag's packs for NIST 800-53, PCI DSS and HIPAA, and each of its settings."""

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from cdk_nag import HIPAASecurityChecks, NIST80053R5Checks, PCIDSS321Checks

from bootstrap import contract
from stacks import cluster as cluster_module
from stacks.hardening import ACKNOWLEDGED, PACKS
from stacks.settings.base import SettingsError
from stacks.settings.props import ClusterProps
from stacks.stack import ClusterStack
from tests.stacks import existing_vpc
from tests.stacks.pinned_block import BLOCK, FACTS, pinned
from tests.stacks.pinned_block import SETTINGS as BLOCK_SETTINGS
from tests.stacks.synthesis import REPOSITORY, Synthesize
from tests.stacks.template_parts import resources
from tests.stacks.validation_report import violations

KEY = "arn:aws:kms:us-west-2:111111111111:key/12345678-1234-1234-1234-123456789012"
HARDENED = {"hardened": "true", "kms_key": KEY, "worker_count": 2}
USER_DATA: dict[str, Any] = {
    "data_buckets": ["images", "team/results:rw"],
    "data_keys": [KEY],
    "secrets": ["ssm:/team/wandb"],
    "policy_arns": ["arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly"],
    "expires": "2999-12-01T18:00:00Z",
    "expiry_action": "delete",
    "idle_stop": "30m",
}
IN_BLOCK = BLOCK_SETTINGS | {"private": True}
IN_EXISTING_VPC = {"vpc_id": existing_vpc.VPC, "subnet_id": existing_vpc.WORKERS, "ami": "ami-0123456789abcdef0"}
Template = dict[str, Any]


def check_with_packs(context: dict[str, Any], outdir: Path) -> list[tuple[str, str]]:
    """Return what the packs find in hardened clusters: with defaults, the user's data, the user's VPC, in a block."""
    app = cdk.App(
        context=context | existing_vpc.LOOKED_UP | pinned(BLOCK, FACTS),
        outdir=str(outdir),
        builtin_cloud_formation_validation=False,
    )
    env = cdk.Environment(account=existing_vpc.ACCOUNT, region=existing_vpc.REGION)
    for number, more in enumerate(({"availability_zone": "us-west-2b"}, USER_DATA, IN_EXISTING_VPC, IN_BLOCK)):
        props = ClusterProps.from_context({"cluster": HARDENED | more})
        ClusterStack(app, f"Stack{number}", props=props, env=env)
    cdk.Validations.of(app).add_plugins(NIST80053R5Checks(app), PCIDSS321Checks(app), HIPAASecurityChecks(app))
    with contextlib.suppress(RuntimeError):  # the report contains the findings
        app.synth()
    return violations(outdir)


def test_cdk_nag_packs_find_nothing_in_a_hardened_cluster(context: dict[str, Any], tmp_path: Path) -> None:
    assert check_with_packs(context, tmp_path) == []


def test_every_acknowledged_rule_would_fire_and_no_other(
    context: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "acknowledge_rules", lambda _: None)
    found = {tuple(name.rsplit("-", 1)) for name, _ in check_with_packs(context, tmp_path)}
    assert {rule for _, rule in found} == set(ACKNOWLEDGED)
    assert {pack for pack, _ in found} == set(PACKS)
    assert len(ACKNOWLEDGED) <= 6


def test_page_gives_the_reason_for_each_acknowledged_rule() -> None:
    page = (REPOSITORY / "docs/security.md").read_text()
    assert dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|$", page, re.MULTILINE)) == dict(ACKNOWLEDGED)


@pytest.fixture(scope="module")
def hardened(synthesize: Synthesize) -> Template:
    return synthesize(hardened=True, private=True, flow_logs=True, kms_key=KEY, worker_count=2)


def test_customer_key_encrypts_all_storage(hardened: Template, synthesize: Synthesize) -> None:
    for part in resources(hardened, "AWS::EC2::LaunchTemplate"):
        [volume] = part["Properties"]["LaunchTemplateData"]["BlockDeviceMappings"]
        assert (volume["Ebs"]["Encrypted"], volume["Ebs"]["KmsKeyId"]) == (True, KEY)
    [table] = resources(hardened, "AWS::DynamoDB::Table")
    assert table["Properties"]["SSESpecification"] == {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": KEY}
    assert table["Properties"]["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    [bucket] = resources(hardened, "AWS::S3::Bucket")
    [rule] = bucket["Properties"]["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    by_default = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": KEY}
    assert rule == {"BucketKeyEnabled": True, "ServerSideEncryptionByDefault": by_default}
    assert [group["Properties"]["KmsKeyId"] for group in resources(hardened, "AWS::Logs::LogGroup")] == [KEY, KEY]
    [file_system] = resources(synthesize(kms_key=KEY, shared_storage="efs"), "AWS::EFS::FileSystem")
    assert file_system["Properties"]["KmsKeyId"] == KEY


def test_nodes_use_the_key_through_two_services_alone(hardened: Template) -> None:
    policies = [
        resource["Properties"]["PolicyDocument"]["Statement"]
        for resource in resources(hardened, "AWS::IAM::ManagedPolicy")
    ]
    uses = [statement for policy in policies for statement in policy if "kms:" in json.dumps(statement["Action"])]
    assert len(uses) == 4
    for statement in uses:
        assert statement["Resource"] == KEY
        [service] = statement["Condition"]["StringEquals"].values()
        assert service["Fn::Join"][1][0] in ("s3.", "dynamodb.")
    assert resources(hardened, "AWS::IAM::Policy") == []
    # A managed policy has room for 6,144 characters, including names of a stack.
    assert all(len(re.sub(r"\s", "", json.dumps(policy))) < 5000 for policy in policies)


def test_key_is_allowed_before_anything_is_encrypted_with_it(synthesize: Synthesize, hardened: Template) -> None:
    policies = []
    for template in (hardened, synthesize(kms_key=KEY), synthesize(kms_key=KEY.replace("1234", "5678"))):
        parts = template["Resources"]
        kinds = ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy")
        ours = {name for name, part in parts.items() if part["Type"] in kinds and "kms:" in json.dumps(part)}
        assert len(ours) == 2
        assert not any("Fn::GetAtt" in json.dumps(parts[name]) for name in ours)
        for kind in ("AWS::DynamoDB::Table", "AWS::S3::Bucket"):
            [waiting] = resources(template, kind)
            assert ours <= {*waiting["DependsOn"]}
        policies.append(ours)
    # Another key has other policies, which CloudFormation creates before it deletes these.
    assert not policies[1] & policies[2]


def test_names_too_long_for_a_managed_policy_are_refused(synthesize: Synthesize) -> None:
    long = tuple(f"{'b' * 62}{n}/{'p' * 300}:rw" for n in range(10))
    settings: Template = {"hardened": True, "private": True, "flow_logs": True, "kms_key": KEY}
    message = (
        "^data_buckets and data_keys must need permissions of at most 6144 characters with hardened, got [0-9]{5}: "
    )
    with pytest.raises(SettingsError, match=message):
        synthesize(data_buckets=long, **settings)
    assert synthesize(data_buckets=[name[:63] for name in long], **settings)


def test_flow_log_fills_a_group_of_its_own_and_may_do_nothing_else(hardened: Template) -> None:
    [log] = resources(hardened, "AWS::EC2::FlowLog")
    groups = {name for name, part in hardened["Resources"].items() if part["Type"] == "AWS::Logs::LogGroup"}
    [own] = [name for name in groups if "FlowLogs" in name]
    assert own in json.dumps(log["Properties"]["LogDestination"])
    assert log["Properties"]["TrafficType"] == "ALL"
    assert hardened["Resources"][own]["Properties"]["RetentionInDays"] == 14
    [policy] = [p for p in resources(hardened, "AWS::IAM::ManagedPolicy") if "FlowLogs" in json.dumps(p)]
    [statement] = policy["Properties"]["PolicyDocument"]["Statement"]
    assert statement["Action"] == ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"]
    assert statement["Resource"] == {"Fn::GetAtt": [own, "Arn"]}


def test_every_role_has_the_boundary_and_the_prefix(synthesize: Synthesize) -> None:
    name = "eu-" + "c" * 35
    template = synthesize(
        cluster_name=name, role_name_prefix="t", permissions_boundary="team-x", flow_logs=True,
        expires="2999-12-01T18:00:00Z", expiry_action="delete",
    )  # fmt: skip
    roles = resources(template, "AWS::IAM::Role")
    ends = []
    for role in roles:
        assert role["Properties"]["PermissionsBoundary"]["Fn::Join"][1][-1] == ":policy/team-x"
        start, region, end = role["Properties"]["RoleName"]["Fn::Join"][1]
        assert (start, region) == (f"t{name}-", {"Ref": "AWS::Region"})
        assert len(start + "ap-southeast-1" + end) <= 64
        ends.append(end)
    assert sorted(ends) == ["-deletion", "-expiry", "-flow-logs", "-master", "-worker"]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"private": "false"}, "private must be true with hardened, got False"),
        ({"flow_logs": "false"}, "flow_logs must be true with hardened, got False"),
        ({"kms_key": ""}, "kms_key must be set with hardened, the ARN of a KMS key like [^ ]*$"),
        ({"shared_storage": "efs"}, "shared_storage must be none or a file system of your own with hardened"),
        ({"ssh_location": "203.0.113.0/24"}, "ssh_location must be left out with private"),
        ({"hardened": "maybe"}, "hardened must be true or false, got 'maybe'"),
        ({"kms_key": "alias/mine"}, "kms_key must be the ARN of a KMS key like .*, got 'alias/mine'"),
        ({**IN_EXISTING_VPC, "flow_logs": "true"}, "flow_logs must be left out with vpc_id: the VPC is not the "),
        ({"permissions_boundary": "a b"}, "permissions_boundary must be the name or the ARN of a managed policy"),
        ({"role_name_prefix": "x" * 29}, "role_name_prefix must be a letter, .* at most 27 beside cluster_name"),
        ({"policy_arns": [f"arn:aws:iam::aws:policy/P{n}" for n in range(5)]}, "policy_arns must be at most 4 with"),
        ({"data_buckets": [f"bucket{n}" for n in range(11)]}, "data_buckets must be at most 10 with hardened, got 11"),
    ],
)  # fmt: skip
def test_setting_that_contradicts_hardened_is_refused_in_one_line(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence) as raised:
        ClusterProps.from_context({"cluster": HARDENED | settings})
    assert "\n" not in str(raised.value)


def test_key_of_another_region_is_refused() -> None:
    with pytest.raises(SettingsError, match="kms_key must be a key of eu-west-1, got"):
        ClusterProps(kms_key=KEY).check_region("eu-west-1")


def test_what_cannot_change_is_guarded(synthesize: Synthesize) -> None:
    template = synthesize(kms_key=KEY, shared_storage="efs", role_name_prefix="team-")
    defaults = {
        name: parameter["Default"] for name, parameter in template["Parameters"].items() if "CreatedWith" in name
    }
    assert [value for name, value in defaults.items() if "FileSystemKey" in name] == [KEY]
    assert [value for name, value in defaults.items() if "RoleNamePrefix" in name] == ["team-"]
    outputs = {name: output["Value"] for name, output in template["Outputs"].items()}
    assert (outputs[contract.KMS_KEY_OUTPUT], outputs[contract.ROLE_PREFIX_OUTPUT]) == (KEY, "team-")
    # Without a file system, CloudFormation changes every key in place.
    assert not any("FileSystemKey" in name for name in synthesize(kms_key=KEY)["Parameters"])
