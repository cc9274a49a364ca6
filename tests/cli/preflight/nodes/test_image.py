"""Test the check of the nodes' image."""

from typing import Any

import pytest

from cli.preflight.nodes.image import check_image
from tests.cli.preflight.stubbed_account import ACCOUNT, Account

AMI = "ami-0123456789abcdef0"
PARAMETER = "/aws/service/deeplearning/ami/x86_64/oss-nvidia-driver-gpu-pytorch-2.12-ubuntu-24.04/latest/ami-id"
PIN = f"ssm:account={ACCOUNT}:parameterName={PARAMETER}:region=eu-west-1"


def describe_image(account: Account, ami: str = AMI, **changes: Any) -> None:
    described = {
        "ImageId": ami,
        "Name": "Deep Learning",
        "State": "available",
        "Architecture": "x86_64",
        "RootDeviceName": "/dev/sda1",
        "BlockDeviceMappings": [
            {"DeviceName": "/dev/sdb", "VirtualName": "ephemeral0"},
            {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 75}},
        ],
        **changes,
    }
    expected = {"Filters": [{"Name": "image-id", "Values": [ami]}], "IncludeDeprecated": True}
    account.answers("ec2", "describe_images", {"Images": [described]}, expected)


def test_parameter_for_the_type_leads_to_the_image(account: Account) -> None:
    account.answers("ssm", "get_parameter", {"Parameter": {"Value": AMI}}, {"Name": PARAMETER})
    describe_image(account)
    result = account.finds(check_image)
    assert (result.level, result.sentence) == ("ok", f"{AMI} (Deep Learning) suits g6.xlarge and takes 75 of 150 GiB")


def test_unknown_type_is_checked_with_the_deploys_image(account: Account) -> None:
    account.settings |= {"instance_type": "g9.48xlarge", "gpu_count": 8}
    account.answers("ssm", "get_parameter", {"Parameter": {"Value": AMI}}, {"Name": PARAMETER})
    describe_image(account)
    assert account.finds(check_image).level == "ok"


def test_missing_parameter_is_a_problem_with_a_fix(account: Account) -> None:
    account.refuses("ssm", "get_parameter", "ParameterNotFound", {"Name": PARAMETER})
    result = account.finds(check_image)
    assert (result.level, result.sentence) == ("problem", f"there is no SSM parameter {PARAMETER} in eu-west-1")
    assert "aws ssm get-parameters-by-path" in result.fix


def test_wrong_parameter_of_the_user_is_to_be_corrected(account: Account) -> None:
    account.settings["ami"] = "/my/ami"
    account.refuses("ssm", "get_parameter", "ParameterNotFound", {"Name": "/my/ami"})
    assert account.finds(check_image).fix == "correct ami"


def test_pinned_image_is_the_one_checked(account: Account) -> None:
    account.cdk_context[PIN] = "ami-0aaaaaaaaaaaaaaa0"
    describe_image(account, "ami-0aaaaaaaaaaaaaaa0")
    assert account.finds(check_image).level == "ok"


@pytest.mark.parametrize(
    ("pinned", "settings", "fix"),
    [
        (True, {}, f"cdk context --reset '{PIN}' takes the newest for nodes launched after the next deploy"),
        (False, {}, "take a newer release of this project, or set ami to an image of a newer family"),
        (False, {"ami": AMI}, "set ami to a newer image, or leave it out"),
    ],
)
def test_old_image_is_reported_with_the_update_command(
    account: Account, settings: dict[str, Any], fix: str, *, pinned: bool
) -> None:
    account.settings |= settings
    if pinned:
        account.cdk_context[PIN] = AMI
    elif not settings:
        account.answers("ssm", "get_parameter", {"Parameter": {"Value": AMI}}, {"Name": PARAMETER})
    describe_image(account, CreationDate="2024-01-01T00:00:00.000Z")
    suits, old = account.check(check_image)
    assert (suits.level, old.level, old.fix) == ("ok", "warning", fix)


def test_preflight_fails_when_the_pinned_image_is_deregistered(account: Account) -> None:
    account.cdk_context[PIN] = AMI
    account.answers("ec2", "describe_images", {"Images": []})
    result = account.finds(check_image)
    assert (result.level, result.fix) == ("problem", f"cdk context --reset '{PIN}'")


def test_image_that_the_user_cannot_use_is_a_problem(account: Account) -> None:
    account.settings["ami"] = AMI
    account.answers("ec2", "describe_images", {"Images": []})
    result = account.finds(check_image)
    assert (result.level, result.fix) == ("problem", "set ami to an image that you can use")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"Architecture": "arm64"}, f"{AMI} is for arm64, g6.xlarge is x86_64"),
        ({"RootDeviceName": "/dev/xvda"}, f"{AMI} has its root on /dev/xvda, the cluster's nodes on /dev/sda1"),
        ({"State": "pending"}, f"{AMI} is pending"),
        (
            {"BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 151}}]},
            f"the root volume of {AMI} has 151 GiB, root_volume_gib is 150",
        ),
    ],
)
def test_unsuitable_image_is_a_problem(account: Account, changes: dict[str, Any], sentence: str) -> None:
    account.settings["ami"] = AMI
    describe_image(account, **changes)
    result = account.finds(check_image)
    assert (result.level, result.sentence) == ("problem", sentence)


def test_arm_type_takes_an_arm_image(account: Account) -> None:
    account.settings |= {"ami": AMI, "instance_type": "g5g.xlarge"}
    describe_image(account, Architecture="arm64")
    assert account.finds(check_image).level == "ok"


def test_root_volume_as_large_as_the_images_is_enough(account: Account) -> None:
    account.settings |= {"ami": AMI, "root_volume_gib": 75}
    describe_image(account)
    assert account.finds(check_image).level == "ok"
