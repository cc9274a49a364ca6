"""Check that the machine image exists and suits the instance type and the root volume."""

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cli.preflight.finding import Finding, ok, problem
from cli.preflight.nodes import image_age
from cli.preflight.target import PreflightTarget
from stacks.catalog import instance_types
from stacks.catalog.deep_learning_ami import ROOT_DEVICE, SSM_PATH

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import ImageTypeDef


def check_image(target: PreflightTarget) -> Iterator[Finding]:
    """Find the image in the same way as the deploy, and check it."""
    name = target.props.ami_source
    pinned = _pin(target, name)
    ami = target.cdk_context.get(pinned) or _resolve(target, name)
    if ami is None:
        yield problem("AMI", f"there is no SSM parameter {name} in {target.region}", _other_images(target))
        return
    # Use a filter: a name that is not found would be an error.
    images = target.clients.ec2.describe_images(
        Filters=[{"Name": "image-id", "Values": [str(ami)]}], IncludeDeprecated=True
    )["Images"]
    if not images:
        fix = (
            f"cdk context --reset '{pinned}'"
            if pinned in target.cdk_context
            else "set ami to an image that you can use"
        )
        yield problem("AMI", f"{ami} is not in {target.region}, or not shared with {target.account}", fix)
        return
    faults = list(_faults(target, images[0]))
    yield from faults
    if not faults:
        size = f"{_root_gib(images[0])} of {target.props.root_volume_gib} GiB"
        yield ok("AMI", f"{ami} ({images[0].get('Name', name)}) suits {target.props.instance_type} and takes {size}")
    today = datetime.now(timezone.utc).date()
    other_family_fix = _other_family_fix(target)
    renew_fix = f"cdk context --reset '{pinned}' takes the newest for nodes launched after the next deploy"
    if pinned not in target.cdk_context:
        renew_fix = other_family_fix
    yield from image_age.age(images[0], today=today, renew_fix=renew_fix, other_family_fix=other_family_fix)


def _other_family_fix(target: PreflightTarget) -> str:
    """Return the advice for an image of another family."""
    if target.props.ami is not None:
        return "set ami to a newer image, or leave it out"
    return "take a newer release of this project, or set ami to an image of a newer family"


def _pin(target: PreflightTarget, name: str) -> str:
    """Return the key of cdk.context.json under which the CDK keeps the parameter's value."""
    return f"ssm:account={target.account}:parameterName={name}:region={target.region}"


def _resolve(target: PreflightTarget, name: str) -> str | None:
    if name.startswith("ami-"):
        return name
    ssm = target.clients.ssm
    try:
        return ssm.get_parameter(Name=name)["Parameter"]["Value"]
    except ssm.exceptions.ParameterNotFound:
        return None


def _other_images(target: PreflightTarget) -> str:
    if target.props.ami is not None:
        return "correct ami"
    return (
        "set ami to another of aws ssm get-parameters-by-path --recursive "
        f"--region {target.region} --path {SSM_PATH} --query 'Parameters[].Name'"
    )


def _faults(target: PreflightTarget, image: "ImageTypeDef") -> Iterator[Finding]:
    ami, props = image.get("ImageId", ""), target.props
    if image.get("State") != "available":
        yield problem("AMI", f"{ami} is {image.get('State')}", "set ami to one that is available")
    wanted = "arm64" if instance_types.is_arm(props.instance_type) else "x86_64"
    if image.get("Architecture") != wanted:
        sentence = f"{ami} is for {image.get('Architecture')}, {props.instance_type} is {wanted}"
        yield problem("AMI", sentence, f"set ami to one for {wanted}, or another instance_type")
    if image.get("RootDeviceName") != ROOT_DEVICE:
        sentence = f"{ami} has its root on {image.get('RootDeviceName')}, the cluster's nodes on {ROOT_DEVICE}"
        yield problem("AMI", sentence, "set ami to Ubuntu 22.04 or later")
    min_gib = _root_gib(image)
    if min_gib > props.root_volume_gib:
        sentence = f"the root volume of {ami} has {min_gib} GiB, root_volume_gib is {props.root_volume_gib}"
        yield problem("AMI", sentence, f"-c root_volume_gib={min_gib}")


def _root_gib(image: "ImageTypeDef") -> int:
    root = image.get("RootDeviceName")
    mappings = image.get("BlockDeviceMappings", [])
    return next((m["Ebs"].get("VolumeSize", 0) for m in mappings if m.get("DeviceName") == root and "Ebs" in m), 0)
