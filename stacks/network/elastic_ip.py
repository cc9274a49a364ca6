"""Define the Elastic IP of the master, which each new master associates with itself."""

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from bootstrap import contract


class MasterElasticIp(Construct):
    """An Elastic IP that the current master's agent associates, not CloudFormation."""

    def __init__(self, scope: Construct, construct_id: str, *, cluster_name: str, subnet: ec2.ISubnet) -> None:
        super().__init__(scope, construct_id)
        address = ec2.CfnEIP(self, "Address", domain="vpc")
        # It needs the attached gateway (AWS::EC2::EIP), which precedes the subnet's route to the internet.
        address.node.add_dependency(subnet.internet_connectivity_established)
        cdk.Tags.of(address).add("Name", f"{cluster_name}-{contract.MASTER}")
        self.address = address.ref
        self.allocation_id = address.attr_allocation_id

    @property
    def arn(self) -> str:
        """Return the ARN of the address, for IAM."""
        return cdk.Stack.of(self).format_arn(service="ec2", resource="elastic-ip", resource_name=self.allocation_id)
