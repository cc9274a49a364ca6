"""List what a test has left in the local account."""

from typing import Any

from tests.local.control_plane.harness import Aws

LISTINGS = [
    ("autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups"),
    ("autoscaling", "describe_tags", "Tags"),
    ("dynamodb", "list_tables", "TableNames"),
    ("ec2", "describe_addresses", "Addresses"),
    ("ec2", "describe_iam_instance_profile_associations", "IamInstanceProfileAssociations"),
    ("ec2", "describe_internet_gateways", "InternetGateways"),
    ("ec2", "describe_launch_templates", "LaunchTemplates"),
    ("ec2", "describe_nat_gateways", "NatGateways"),
    ("ec2", "describe_network_interfaces", "NetworkInterfaces"),
    ("ec2", "describe_route_tables", "RouteTables"),
    ("ec2", "describe_security_groups", "SecurityGroups"),
    ("ec2", "describe_subnets", "Subnets"),
    ("ec2", "describe_volumes", "Volumes"),
    ("ec2", "describe_vpc_endpoints", "VpcEndpoints"),
    ("ec2", "describe_vpcs", "Vpcs"),
    ("iam", "list_instance_profiles", "InstanceProfiles"),
    ("iam", "list_policies", "Policies"),
    ("iam", "list_roles", "Roles"),
    ("logs", "describe_log_groups", "logGroups"),
    ("s3", "list_buckets", "Buckets"),
]


def everything(aws: Aws) -> dict[str, Any]:
    """Return all running instances, and all resources that cost money or get in the way."""
    listings = {call: getattr(aws.client(service), call)()[key] for service, call, key in LISTINGS}
    return listings | {"instances": running(aws)}


def running(aws: Aws) -> list[str]:
    states = [{"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}]
    reservations = aws.client("ec2").describe_instances(Filters=states)["Reservations"]
    return [i["InstanceId"] for reservation in reservations for i in reservation["Instances"]]
