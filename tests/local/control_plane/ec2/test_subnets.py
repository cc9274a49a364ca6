"""Test the routes and the addresses of subnets."""

import pytest
from botocore.exceptions import ClientError

from local.control_plane.ec2.images import FAMILIES, image_id
from tests.local.control_plane.harness import REGION, Aws, Stacks
from tests.local.control_plane.templates import cluster


def test_route_table_of_a_subnet_has_the_templates_routes(aws: Aws, stacks: Stacks) -> None:
    stacks.create(cluster())
    ec2 = aws.client("ec2")

    def ways_out(subnet: str) -> list[str]:
        filters = [{"Name": "association.subnet-id", "Values": [stacks.physical_id(subnet)]}]
        (table,) = ec2.describe_route_tables(Filters=filters)["RouteTables"]
        routes = [r for r in table["Routes"] if r.get("DestinationCidrBlock") == "0.0.0.0/0"]
        return [route.get("NatGatewayId") or route.get("GatewayId") for route in routes]

    assert ways_out("Public") == [stacks.physical_id("Gateway")]
    assert ways_out("Private") == [stacks.physical_id("Nat")]


def test_full_subnet_refuses_a_launch(aws: Aws) -> None:
    ec2 = aws.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.9.0.0/28", AvailabilityZone=f"{REGION}a")["Subnet"]["SubnetId"]
    launch = {"ImageId": image_id(FAMILIES[0]), "SubnetId": subnet, "InstanceType": "c5.large"}
    # AWS reserves five of the sixteen addresses.
    launched = [i["InstanceId"] for i in ec2.run_instances(MinCount=11, MaxCount=11, **launch)["Instances"]]
    refusal = (
        r"\(InsufficientFreeAddressesInSubnet\).*: "
        r"The specified subnet does not have enough free addresses to satisfy the request\.$"
    )
    with pytest.raises(ClientError, match=refusal):
        ec2.run_instances(MinCount=1, MaxCount=1, **launch)
    ec2.terminate_instances(InstanceIds=launched)
    ec2.delete_subnet(SubnetId=subnet)
    ec2.delete_vpc(VpcId=vpc)
