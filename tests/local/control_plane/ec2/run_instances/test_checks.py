"""Test that EC2 refuses launches of what does not exist."""

from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.control_plane.ec2.images import FAMILIES, image_id
from tests.local.control_plane.harness import Aws

PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGG3/7/0FalGn2K2g71FmBI4m+jGYz921HxJAbjLG1+J me"


def run(aws: Aws, **arguments: Any) -> list[dict[str, Any]]:
    image = {"ImageId": image_id(FAMILIES[0])}
    answer = aws.client("ec2").run_instances(MinCount=1, MaxCount=1, **image | arguments)
    instances: list[dict[str, Any]] = answer["Instances"]
    return instances


def test_unknown_key_pair_is_refused(aws: Aws) -> None:
    with pytest.raises(ClientError, match=r"InvalidKeyPair\.NotFound.*'nobodys' does not exist"):
        run(aws, KeyName="nobodys")


def test_imported_key_pair_is_described_and_can_be_launched_with(aws: Aws, tmp_path: Path) -> None:
    ec2 = aws.client("ec2")
    ec2.import_key_pair(KeyName="mine", PublicKeyMaterial=PUBLIC_KEY.encode())
    (key_pair,) = ec2.describe_key_pairs(KeyNames=["mine"], IncludePublicKey=True)["KeyPairs"]
    assert key_pair["PublicKey"].split()[:2] == PUBLIC_KEY.split()[:2]
    (instance,) = run(aws, KeyName="mine")
    assert instance["KeyName"] == "mine"
    ec2.terminate_instances(InstanceIds=[instance["InstanceId"]])
    ec2.delete_key_pair(KeyName="mine")


def test_security_groups_beside_interfaces_are_refused(aws: Aws) -> None:
    refusal = r"InvalidParameterCombination.*: Network interfaces and an instance-level security groups may not be"
    ec2 = aws.client("ec2")
    both: dict[str, Any] = {"NetworkInterfaces": [{"DeviceIndex": 0}], "SecurityGroupIds": ["sg-01234567"]}
    with pytest.raises(ClientError, match=refusal):
        run(aws, **both)
    ec2.create_launch_template(LaunchTemplateName="both", LaunchTemplateData=both | {"InstanceType": "c5.large"})
    with pytest.raises(ClientError, match=refusal):
        run(aws, LaunchTemplate={"LaunchTemplateName": "both"})
    ec2.delete_launch_template(LaunchTemplateName="both")


def test_unknown_image_is_refused(aws: Aws) -> None:
    with pytest.raises(ClientError, match=r"InvalidAMIID\.NotFound"):
        run(aws, ImageId="ami-00000000000000000")


def test_unknown_instance_type_is_refused(aws: Aws) -> None:
    refusal = r"\(InvalidParameterValue\).*: Invalid value 'c5\.99999xlarge' for InstanceType\.$"
    with pytest.raises(ClientError, match=refusal):
        run(aws, InstanceType="c5.99999xlarge")
    ec2 = aws.client("ec2")
    ec2.create_launch_template(LaunchTemplateName="big", LaunchTemplateData={"InstanceType": "c5.99999xlarge"})
    with pytest.raises(ClientError, match=refusal):
        run(aws, LaunchTemplate={"LaunchTemplateName": "big"})
    ec2.delete_launch_template(LaunchTemplateName="big")
