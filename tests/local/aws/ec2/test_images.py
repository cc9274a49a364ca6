import pytest

from local.aws.ec2.images import FAMILIES, image_id, parameter_name
from stacks.catalogue.deep_learning_ami import DEFAULT_AMI_FAMILY
from tests.local.aws.harness import Aws, Stacks


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


def test_the_default_image_of_the_product_is_known() -> None:
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
