"""Test that a file system is deleted only if a cluster made it, none uses it, and the user agrees."""

import json
from typing import Any

import boto3
import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.efs.models import efs_backends

from cli.main import main
from stacks.prices.price_list import price_list
from tests.cli.moto_cluster import REGION

NO_SUCH = "fs-00000000000000000"


@pytest.fixture
def efs(aws: dict[str, str]) -> Any:
    assert aws["AWS_REGION"] == REGION
    return boto3.client("efs", region_name=REGION)


def make(efs: Any, **tags: str) -> str:
    given = [{"Key": key.replace("_", ":"), "Value": value} for key, value in tags.items()]
    made = efs.create_file_system(CreationToken=json.dumps(tags), Encrypted=True, Tags=given)
    return str(made["FileSystemId"])


def file_systems(efs: Any) -> list[str]:
    return [found["FileSystemId"] for found in efs.describe_file_systems()["FileSystems"]]


def test_kept_file_systems_are_listed_with_their_price(efs: Any, capsys: pytest.CaptureFixture[str]) -> None:
    mine = make(efs, deeplearning_cluster="demo")
    make(efs, team="vision")
    assert main(["delete-storage"]) == 0
    [_, row] = capsys.readouterr().out.splitlines()
    assert row.split() == [mine, "demo", "0.0", "0.00", "-"]


def test_json_lists_file_systems_and_names_the_deleted_one(efs: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["delete-storage", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"version": 1, "region": REGION, "file_systems": []}
    mine = make(efs, deeplearning_cluster="demo")
    efs_backends[DEFAULT_ACCOUNT_ID][REGION].file_systems_by_id[mine]._size_value = 5 * 10**8
    assert main(["delete-storage", "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)["file_systems"]
    price = price_list(REGION).efs_gb_month
    assert found.pop("usd_per_month") == pytest.approx(0.5 * price)
    assert found == {"id": mine, "cluster": "demo", "gb": 0.5, "mount_targets": 0, "used_by": None}
    assert main(["delete-storage", mine, "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"version": 1, "region": REGION, "file_system": mine, "gb": 0.5}


def test_file_system_deletion_needs_confirmation_or_yes(efs: Any, capsys: pytest.CaptureFixture[str]) -> None:
    mine = make(efs, deeplearning_cluster="demo")
    assert main(["delete-storage", mine]) == 2
    assert "use --yes" in capsys.readouterr().err
    assert file_systems(efs) == [mine]
    assert main(["delete-storage", mine, "--yes"]) == 0
    assert file_systems(efs) == []


def test_foreign_or_missing_file_system_is_refused(efs: Any, capsys: pytest.CaptureFixture[str]) -> None:
    foreign = make(efs, team="vision")
    for name, message in ((foreign, "no cluster made it"), (NO_SUCH, "no file system")):
        assert main(["delete-storage", name, "--yes"]) == 1
        assert message in capsys.readouterr().err
    assert file_systems(efs) == [foreign]


def test_storage_in_use_by_a_mount_target_or_a_stack_is_kept(efs: Any, capsys: pytest.CaptureFixture[str]) -> None:
    mine = make(efs, deeplearning_cluster="demo")
    subnet = boto3.client("ec2", region_name=REGION).describe_subnets()["Subnets"][0]["SubnetId"]
    target = efs.create_mount_target(FileSystemId=mine, SubnetId=subnet)["MountTargetId"]
    assert main(["delete-storage", mine, "--yes"]) == 1
    assert "1 mount targets and may be in use" in capsys.readouterr().err
    efs.delete_mount_target(MountTargetId=target)
    template = {"Resources": {"Q": {"Type": "AWS::SQS::Queue"}}, "Outputs": {"SharedStorage": {"Value": mine}}}
    boto3.client("cloudformation", region_name=REGION).create_stack(StackName="demo", TemplateBody=json.dumps(template))
    assert main(["delete-storage", mine, "--yes"]) == 1
    assert "is in use by stack demo" in capsys.readouterr().err
    assert file_systems(efs) == [mine]
