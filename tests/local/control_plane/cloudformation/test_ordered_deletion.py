"""Test the deletion of stacks of which a part has already been deleted by hand."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.local.control_plane.harness import Aws, Stacks
from tests.local.control_plane.listings import everything
from tests.local.control_plane.templates import attribute, cluster, group, resource

OUT = "0.0.0.0/0"


def parts() -> dict[str, Any]:
    """Return a template with a resource of each kind that a cluster has."""
    table = resource(
        "DynamoDB::Table",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
    )
    rule: dict[str, Any] = {"GroupId": attribute("GroupId", "Security"), "CidrIp": "192.0.2.1/32"}
    web: dict[str, Any] = {"IpProtocol": "tcp", "FromPort": 80, "ToPort": 80}
    return cluster(
        Group=group(1),
        Table=table,
        Bucket=resource("S3::Bucket"),
        Log=resource("Logs::LogGroup"),
        Ingress=resource("EC2::SecurityGroupIngress", **rule, **web),
        Egress=resource("EC2::SecurityGroupEgress", **rule, **web),
    )


def revoke_rules(aws: Aws, stacks: Stacks) -> None:
    ec2 = aws.client("ec2")
    (security_group,) = ec2.describe_security_groups(GroupIds=[stacks.physical_id("Security")])["SecurityGroups"]
    ec2.revoke_security_group_ingress(GroupId=security_group["GroupId"], IpPermissions=security_group["IpPermissions"])
    ec2.revoke_security_group_egress(
        GroupId=security_group["GroupId"], IpPermissions=security_group["IpPermissionsEgress"]
    )


def delete_group(aws: Aws, stacks: Stacks) -> None:
    name = stacks.physical_id("Group")
    aws.client("autoscaling").delete_auto_scaling_group(AutoScalingGroupName=name, ForceDelete=True)


def delete_security_group(aws: Aws, stacks: Stacks) -> None:
    delete_group(aws, stacks)
    aws.client("ec2").delete_security_group(GroupId=stacks.physical_id("Security"))


def delete_route(aws: Aws, stacks: Stacks) -> None:
    table = stacks.physical_id("PrivateTable")
    aws.client("ec2").delete_route(RouteTableId=table, DestinationCidrBlock=OUT)


def delete_route_table(aws: Aws, stacks: Stacks) -> None:
    ec2, table = aws.client("ec2"), stacks.physical_id("PrivateTable")
    (route_table,) = ec2.describe_route_tables(RouteTableIds=[table])["RouteTables"]
    for association in route_table["Associations"]:
        ec2.disassociate_route_table(AssociationId=association["RouteTableAssociationId"])
    ec2.delete_route_table(RouteTableId=table)


def delete_endpoint(aws: Aws, stacks: Stacks) -> None:
    aws.client("ec2").delete_vpc_endpoints(VpcEndpointIds=[stacks.physical_id("S3")])


def release_address(aws: Aws, stacks: Stacks) -> None:
    ec2 = aws.client("ec2")
    ec2.delete_nat_gateway(NatGatewayId=stacks.physical_id("Nat"))
    (address,) = ec2.describe_addresses()["Addresses"]
    ec2.disassociate_address(AssociationId=address["AssociationId"])
    ec2.release_address(AllocationId=address["AllocationId"])


def detach_gateway(aws: Aws, stacks: Stacks) -> None:
    release_address(aws, stacks)
    gateway, vpc = stacks.physical_id("Gateway"), stacks.physical_id("Vpc")
    aws.client("ec2").detach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)


def delete_gateway(aws: Aws, stacks: Stacks) -> None:
    detach_gateway(aws, stacks)
    aws.client("ec2").delete_internet_gateway(InternetGatewayId=stacks.physical_id("Gateway"))


def delete_template(aws: Aws, stacks: Stacks) -> None:
    aws.client("ec2").delete_launch_template(LaunchTemplateId=stacks.physical_id("Template"))


def delete_role_and_profile(aws: Aws, stacks: Stacks) -> None:
    iam, role, profile = aws.client("iam"), stacks.physical_id("Role"), stacks.physical_id("Profile")
    iam.remove_role_from_instance_profile(InstanceProfileName=profile, RoleName=role)
    iam.delete_instance_profile(InstanceProfileName=profile)
    iam.delete_role_policy(RoleName=role, PolicyName="members")
    iam.delete_role(RoleName=role)


def delete_policy(aws: Aws, stacks: Stacks) -> None:
    aws.client("iam").delete_role_policy(RoleName=stacks.physical_id("Role"), PolicyName="members")


def delete_stores(aws: Aws, stacks: Stacks) -> None:
    aws.client("s3").delete_bucket(Bucket=stacks.physical_id("Bucket"))
    aws.client("dynamodb").delete_table(TableName=stacks.physical_id("Table"))
    aws.client("logs").delete_log_group(logGroupName=stacks.physical_id("Log"))


@pytest.mark.parametrize(
    "delete",
    [
        revoke_rules,
        delete_group,
        delete_security_group,
        delete_route,
        delete_route_table,
        delete_endpoint,
        release_address,
        detach_gateway,
        delete_gateway,
        delete_template,
        delete_role_and_profile,
        delete_policy,
        delete_stores,
    ],
)
def test_missing_resource_counts_as_deleted(aws: Aws, stacks: Stacks, delete: Callable[[Aws, Stacks], None]) -> None:
    before = everything(aws)
    stacks.create(parts())
    delete(aws, stacks)
    stacks.cloudformation.delete_stack(StackName="stack")
    assert everything(aws) == before
