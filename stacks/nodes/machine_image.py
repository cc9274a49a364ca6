"""Choose the machine image of the nodes."""

from typing import Final

import aws_cdk as cdk
import jsii
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from stacks.settings.props import ClusterProps

LOGIN_USER: Final = "ubuntu"
"""Ubuntu's login user. Amazon Linux has a different one, and its system Python is too old for the agent."""


@jsii.implements(ec2.IMachineImage)
class ImageById:
    """An image named by its ID, so that the stack needs no map of regions."""

    def __init__(self, ami: str) -> None:
        self._ami = ami

    def get_image(self, scope: Construct) -> ec2.MachineImageConfig:
        """Return the image's ID in the form that the launch template expects."""
        return ec2.MachineImageConfig(
            image_id=self._ami, os_type=ec2.OperatingSystemType.LINUX, user_data=ec2.UserData.for_linux()
        )


def machine_image(scope: Construct, props: ClusterProps) -> ec2.IMachineImage:
    """Return the image that the user names, or the Deep Learning AMI for the instance type.

    With an account and a region, the parameter is looked up once and kept in cdk.context.json; without them,
    CloudFormation resolves it at each deploy.
    """
    source = props.ami_source
    if source.startswith("ami-"):
        return ImageById(source)
    stack = cdk.Stack.of(scope)
    known = not (cdk.Token.is_unresolved(stack.account) or cdk.Token.is_unresolved(stack.region))
    return ec2.MachineImage.from_ssm_parameter(source, cached_in_context=known)
