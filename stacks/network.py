"""The cluster's network: a VPC in one availability zone, a public and a private subnet."""

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from stacks.zones import first_zone


def default_zone(scope: Construct) -> str | None:
    """The region's first zone, looked up once and kept in cdk.context.json; None where nobody can be asked.

    Not ``stack.availability_zones``: this stack answers that one itself, and it would take any kind of zone.
    """
    stack = cdk.Stack.of(scope)
    region = stack.region
    if cdk.Token.is_unresolved(stack.account) or cdk.Token.is_unresolved(region):
        return None
    found = cdk.ContextProvider.get_value(
        scope,
        # AVAILABILITY_ZONE_PROVIDER of the cloud assembly schema; jsii's enumerations do not tell their values.
        provider="availability-zones",
        # The first pass, before the command line has asked, is thrown away.
        dummy_value=[f"{region}a"],
    )
    return first_zone(found.value, region)


class Network(Construct):
    """One zone, one NAT gateway, and S3 and DynamoDB without a way through it."""

    def __init__(
        self, scope: Construct, construct_id: str, *, cluster_name: str, cidr: str, availability_zone: str
    ) -> None:
        super().__init__(scope, construct_id)
        self.vpc = ec2.Vpc(
            self,
            "Vpc",
            vpc_name=cluster_name,
            ip_addresses=ec2.IpAddresses.cidr(cidr),
            availability_zones=[availability_zone],
            nat_gateways=1,
            subnet_configuration=[
                ec2.SubnetConfiguration(name="Public", subnet_type=ec2.SubnetType.PUBLIC),
                ec2.SubnetConfiguration(name="Private", subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS),
            ],
            gateway_endpoints={
                "S3": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3),
                "DynamoDb": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.DYNAMODB),
            },
            # Emptying the default group takes a Lambda function with its own role; no node is in it.
            restrict_default_security_group=False,
        )
        cdk.Validations.of(self.vpc).acknowledge(
            cdk.Acknowledgment(
                id="AwsSolutions::AwsSolutions-VPC7",
                reason="flow logs cost by the gigabyte of training traffic; a user adds one to the VPC",
            ),
            cdk.Acknowledgment(
                id="CloudFormation-Validate::W3010",
                reason="the zone is pinned: one that moved would replace the network and every node",
            ),
        )
        self.public_subnet: ec2.ISubnet = self.vpc.public_subnets[0]
        self.private_subnet: ec2.ISubnet = self.vpc.private_subnets[0]
        self._name_parts(cluster_name)

    def _name_parts(self, cluster_name: str) -> None:
        """Call every part by the cluster: the CDK's names are paths of constructs, alike in all clusters."""
        for subnet, name in ((self.public_subnet, "public"), (self.private_subnet, "private")):
            cdk.Tags.of(subnet).add("Name", f"{cluster_name}-{name}")
        way_out = ["AWS::EC2::EIP", "AWS::EC2::NatGateway"]
        cdk.Tags.of(self.public_subnet).add("Name", f"{cluster_name}-nat", include_resource_types=way_out, priority=200)
