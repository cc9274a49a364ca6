"""Define the network of a cluster: a VPC with a public and a private subnet in its zone, or in each candidate zone."""

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from bootstrap import contract


class Network(Construct):
    """A VPC with one NAT gateway, and nodes in one of its zones; S3 and DynamoDB are reached without the gateway.

    With ``private``, its public subnet contains only the NAT gateway. The gateway stays in the first zone by name,
    wherever the nodes are: another one would change the address from which they reach the internet.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        cluster_name: str,
        cidr: str,
        zones: list[str],
        node_zone: str | None,
        private: bool,
        flow_logs: bool = False,
    ) -> None:
        super().__init__(scope, construct_id)
        self._private = private
        self.vpc = ec2.Vpc(
            self,
            "Vpc",
            vpc_name=cluster_name,
            ip_addresses=ec2.IpAddresses.cidr(cidr),
            availability_zones=zones,
            nat_gateways=1,
            subnet_configuration=[
                ec2.SubnetConfiguration(
                    name="Public", subnet_type=ec2.SubnetType.PUBLIC, map_public_ip_on_launch=not private
                ),
                ec2.SubnetConfiguration(name="Private", subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS),
            ],
            gateway_endpoints={
                "S3": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3),
                "DynamoDb": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.DYNAMODB),
            },
            # Emptying the default group requires a Lambda function with its own role, and no node is in the group.
            restrict_default_security_group=False,
        )
        if not flow_logs:
            reason = "flow logs cost by the gigabyte; the setting flow_logs adds one"
            cdk.Validations.of(self.vpc).acknowledge(
                cdk.Acknowledgment(id="AwsSolutions::AwsSolutions-VPC7", reason=reason)
            )
        cdk.Validations.of(self.vpc).acknowledge(
            cdk.Acknowledgment(
                id="CloudFormation-Validate::W3010",
                reason="the zone is pinned: moving to another zone would replace the network and every node",
            ),
        )
        # If CloudFormation chooses the zone, it has no name yet and is the only one.
        zone_position = zones.index(node_zone) if node_zone in zones else 0
        self.public_subnet: ec2.ISubnet = self.vpc.public_subnets[zone_position]
        self.private_subnet: ec2.ISubnet = self.vpc.private_subnets[zone_position]
        self.nat_gateway = self.vpc.public_subnets[0].node.find_child("NATGateway")
        self.node_cidrs = (cidr,)
        """Blocks that contain every node's address."""
        self._tag_names(cluster_name, zones)

    def subnet_for(self, node_type: contract.NodeType) -> ec2.ISubnet:
        """Return the subnet of a type's nodes; unless all are private, the master is reachable from outside."""
        is_public = node_type == contract.MASTER and not self._private
        return self.public_subnet if is_public else self.private_subnet

    @property
    def worker_subnets(self) -> list[ec2.ISubnet]:
        """Return the subnets in which workers may be, one for each candidate zone."""
        return self.vpc.private_subnets

    def _tag_names(self, cluster_name: str, zones: list[str]) -> None:
        """Tag every resource with the cluster's name, because the CDK's own names are the same in all clusters."""
        for subnets, name in ((self.vpc.public_subnets, "public"), (self.vpc.private_subnets, "private")):
            for subnet, zone in zip(subnets, zones, strict=True):
                suffix = f"-{zone}" if len(zones) > 1 else ""
                cdk.Tags.of(subnet).add("Name", f"{cluster_name}-{name}{suffix}")
        nat = ["AWS::EC2::EIP", "AWS::EC2::NatGateway"]
        first = self.vpc.public_subnets[0]
        cdk.Tags.of(first).add("Name", f"{cluster_name}-nat", include_resource_types=nat, priority=200)
