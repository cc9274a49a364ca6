"""Test the images that nodes are launched from, and those made from nodes."""

import pytest
from botocore.exceptions import ClientError

from local.control_plane.ec2.images import FAMILIES, image_id, parameter_name
from stacks.catalog.deep_learning_ami import DEFAULT_AMI_FAMILY
from tests.local.control_plane.harness import Aws, Stacks


@pytest.mark.parametrize("family", FAMILIES)
def test_parameter_names_a_usable_image(aws: Aws, family: str) -> None:
    parameter = aws.client("ssm").get_parameter(Name=parameter_name(family))["Parameter"]
    (image,) = aws.client("ec2").describe_images(ImageIds=[parameter["Value"]])["Images"]
    assert image["ImageId"] == image_id(family)
    assert image["RootDeviceName"] == "/dev/sda1"
    assert image["Architecture"] == "x86_64"
    assert image["State"] == "available"
    assert image["Name"].startswith("Deep Learning ")
    assert image["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] == (75 if family.startswith("base-") else 30)
    created, deprecated = (image[time].partition("T")[0] for time in ("CreationDate", "DeprecationTime"))
    assert created < "2026-11-02" < deprecated


def test_default_image_of_the_product_is_known() -> None:
    assert DEFAULT_AMI_FAMILY in FAMILIES


def test_template_parameter_resolves_to_the_image(stacks: Stacks) -> None:
    image = {
        "Type": "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>",
        "Default": parameter_name(FAMILIES[0]),
    }
    stacks.create(
        {
            "Parameters": {"Image": image},
            "Resources": {"Log": {"Type": "AWS::Logs::LogGroup"}},
            "Outputs": {"Image": {"Value": {"Ref": "Image"}}},
        }
    )
    assert stacks.outputs() == {"Image": image_id(FAMILIES[0])}


def test_image_of_an_instance_has_tags_and_a_unique_name(aws: Aws) -> None:
    ec2 = aws.client("ec2")
    launched = ec2.run_instances(ImageId=image_id(FAMILIES[0]), MinCount=1, MaxCount=1, InstanceType="c5.large")
    instance_id = launched["Instances"][0]["InstanceId"]
    tag = {"Key": "made-by", "Value": "this test"}
    tags = [{"ResourceType": kind, "Tags": [tag]} for kind in ("image", "snapshot")]
    made = ec2.create_image(InstanceId=instance_id, Name="baked", NoReboot=True, TagSpecifications=tags)["ImageId"]
    own = [{"Name": "tag:made-by", "Values": ["this test"]}]
    (image,) = ec2.describe_images(Owners=["self"], Filters=own)["Images"]
    assert (image["ImageId"], image["State"], image["RootDeviceName"]) == (made, "available", "/dev/sda1")
    snapshot_id = image["BlockDeviceMappings"][0]["Ebs"]["SnapshotId"]
    assert tag in ec2.describe_snapshots(SnapshotIds=[snapshot_id])["Snapshots"][0]["Tags"]
    second = ec2.run_instances(ImageId=made, MinCount=1, MaxCount=1, InstanceType="c5.large")["Instances"][0]
    with pytest.raises(ClientError, match=r"InvalidAMIName\.Duplicate"):
        ec2.create_image(InstanceId=instance_id, Name="baked")
    ec2.terminate_instances(InstanceIds=[instance_id, second["InstanceId"]])
    with pytest.raises(ClientError, match="IncorrectState"):
        ec2.create_image(InstanceId=instance_id, Name="another")
