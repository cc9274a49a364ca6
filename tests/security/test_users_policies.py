"""Run dlcluster as a user whose policy lacks one action: the refusal names the action, and nothing has changed."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bootstrap.contract import MEMBERSHIP_ID, SETUP_DONE, SETUP_HASH_LENGTH, TABLE_KEY
from cli.aws.clusters import Cluster as FoundCluster
from cli.aws.clusters import deployed_setup, find_cluster
from cli.errors import EXIT_FAILED
from cli.main import main
from cli.ssh.master_connection import CommandResult
from cli.ssh.user_policy import AwsScope, user_policy
from tests.cli.moto_cluster import KEY, put_members
from tests.local.control_plane.harness import REGION, user_with_policy
from tests.security.cluster import ACCOUNT, BOTH, RoleCluster

ADDRESS = "203.0.113.9/32"
COMMANDS = {
    "allow-ip": ("--cluster", "deeplearning", "allow-ip", ADDRESS),
    "bake": ("bake", "--yes"),
}
NEEDED = {
    "allow-ip": [
        f"ec2:{action}"
        for action in ("DescribeManagedPrefixLists", "GetManagedPrefixListEntries", "ModifyManagedPrefixList")
    ],
    "bake": [
        "autoscaling:DetachInstances",
        *(f"dynamodb:{action}" for action in ("GetItem", "PutItem", "DeleteItem")),
        *(f"kms:{action}" for action in ("Encrypt", "GenerateDataKey*", "ReEncrypt*")),
        *(
            f"ec2:{action}"
            for action in ("CreateImage", "CreateTags", "DeleteTags", "DescribeImages", "TerminateInstances")
        ),
    ],
}
"""Actions that a user needs besides the policy that `dlcluster policy` prints, as docs/use says."""


class IdleMaster:
    """Answer like a master without jobs; no other command may reach it."""

    def output(self, command: str, **_: Any) -> CommandResult:
        assert command.startswith("launch "), command
        return CommandResult(exit_code=0, stdout=b"[]", stderr="")


@dataclass(frozen=True, kw_only=True, slots=True)
class Project:
    """A directory with the cluster's settings, and the cluster."""

    cluster: RoleCluster
    described: FoundCluster
    directory: Path

    def policy(self, command: str, *, without: str) -> dict[str, Any]:
        """Return the policy of a user who may run a command, less one action."""
        scope = AwsScope(partition="aws", region=REGION, account=ACCOUNT)
        document = user_policy(self.described, scope)
        assert without in NEEDED[command]
        actions = [action for action in NEEDED[command] if action != without]
        more = {"Effect": "Allow", "Action": actions, "Resource": "*"}
        return {**document, "Statement": [*document["Statement"], more]}

    def state(self) -> dict[str, Any]:
        """Return everything that the commands can change."""
        aws, groups = self.cluster.aws, [self.cluster.group(node_type) for node_type in BOTH]
        ec2 = aws.client("ec2")
        allowed = ec2.describe_managed_prefix_lists(PrefixListIds=[self.described.allow_list])["PrefixLists"]
        items = aws.client("dynamodb").scan(TableName=self.described.table)["Items"]
        return {
            "settings": (self.directory / "cdk.json").read_text(),
            "addresses": [(prefix_list["State"], prefix_list["Version"]) for prefix_list in allowed],
            "members": {group: self.cluster.members(group) for group in groups},
            "instances": ec2.describe_instances()["Reservations"],
            "images": ec2.describe_images(Owners=["self"])["Images"],
            "records": {item[TABLE_KEY]["S"]: item for item in items},
        }


@pytest.fixture
def project(cluster: RoleCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """Make the settings' directory, and a membership whose workers have run the setup."""
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_ENDPOINT_URL": cluster.aws.url}
    for name, value in {**keys, "AWS_REGION": REGION, "AWS_CONFIG_FILE": "/dev/null", "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    settings = {"cluster_name": cluster.name, "key_name": "me"}
    (tmp_path / "cdk.json").write_text(json.dumps({"context": {"cluster": settings}}))
    described = find_cluster(cluster.stacks.cloudformation, name=cluster.name, region=REGION)
    put_members(described.table, [*members(cluster, described)], region=REGION)
    yield Project(cluster=cluster, described=described, directory=tmp_path)
    key = {TABLE_KEY: {"S": MEMBERSHIP_ID}}
    cluster.aws.client("dynamodb").delete_item(TableName=described.table, Key=key)


def members(cluster: RoleCluster, described: FoundCluster) -> Iterator[dict[str, Any]]:
    """Yield a row of the membership for each node."""
    ids = [(node_type, member) for node_type in BOTH for member in cluster.members(cluster.group(node_type))]
    reservations = cluster.aws.client("ec2").describe_instances(InstanceIds=[instance_id for _, instance_id in ids])[
        "Reservations"
    ]
    addresses = {
        instance["InstanceId"]: instance["PrivateIpAddress"] for some in reservations for instance in some["Instances"]
    }
    for node_index, (node_type, instance_id) in enumerate(ids, 1):
        yield {
            "node_index": node_index,
            "instance_id": instance_id,
            "address": addresses[instance_id],
            "node_type": node_type,
            "host_key": KEY,
            "release": described.release,
            "setup": f"{SETUP_DONE}:{deployed_setup(described).sha256[:SETUP_HASH_LENGTH]}",
        }


@pytest.mark.parametrize(
    ("command", "action"),
    [
        ("allow-ip", "ec2:ModifyManagedPrefixList"),
        ("bake", "autoscaling:DetachInstances"),
        ("bake", "dynamodb:PutItem"),
        ("bake", "ec2:CreateImage"),
        ("bake", "ec2:CreateTags"),
        ("bake", "ec2:TerminateInstances"),
    ],
)
def test_user_without_an_action_is_refused_and_changes_nothing(
    project: Project, command: str, action: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def connect(_target: object) -> Iterator[IdleMaster]:
        yield IdleMaster()

    monkeypatch.setattr("cli.ssh.master.open_connection", connect)
    before = project.state()
    with user_with_policy(project.cluster.aws, "ann", project.policy(command, without=action)) as keys:
        for name, value in keys.items():
            monkeypatch.setenv(name.upper(), value)
        assert main(COMMANDS[command]) == EXIT_FAILED
    *announced, line = capsys.readouterr().err.splitlines()
    assert line.startswith(f"dlcluster: AWS refused {action.partition(':')[2]}: ")
    assert f"User: arn:aws:iam::{ACCOUNT}:user/ann is not authorized to perform: {action}" in line
    assert all("making an image" in earlier for earlier in announced)
    assert project.state() == before
