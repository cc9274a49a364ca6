from tests.local.aws.harness import Aws, Stacks
from tests.local.aws.templates import cluster


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
