"""List what a cluster leaves in the account."""

from typing import Any

import boto3


def resources_by_kind() -> dict[str, list[str]]:
    """List resources of the kinds that a cluster has, by id, except the account's default VPC."""
    ec2, iam = boto3.client("ec2"), boto3.client("iam")
    vpcs = ec2.describe_vpcs(Filters=[{"Name": "is-default", "Values": ["false"]}])["Vpcs"]
    vpc_ids = [vpc["VpcId"] for vpc in vpcs]
    running: Any = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    reservations = ec2.describe_instances(Filters=running)["Reservations"]
    groups = boto3.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    return {
        "vpcs": vpc_ids,
        "addresses": [address["PublicIp"] for address in ec2.describe_addresses()["Addresses"]],
        "nat gateways": [gateway["NatGatewayId"] for gateway in ec2.describe_nat_gateways()["NatGateways"]],
        "internet gateways": [
            gateway["InternetGatewayId"]
            for gateway in ec2.describe_internet_gateways()["InternetGateways"]
            if all(attachment["VpcId"] in vpc_ids for attachment in gateway["Attachments"])
        ],
        "launch templates": [
            template["LaunchTemplateId"] for template in ec2.describe_launch_templates()["LaunchTemplates"]
        ],
        "instances": [instance["InstanceId"] for reservation in reservations for instance in reservation["Instances"]],
        "groups": [group["AutoScalingGroupName"] for group in groups],
        "tables": boto3.client("dynamodb").list_tables()["TableNames"],
        "profiles": [profile["InstanceProfileName"] for profile in iam.list_instance_profiles()["InstanceProfiles"]],
    }


def leftovers() -> dict[str, list[str]]:
    """List the resources of kinds of which any is left; empty if a cluster left nothing."""
    return {kind: resources for kind, resources in resources_by_kind().items() if resources}


def stack_buckets() -> list[str]:
    """List buckets, except that of ``cdk bootstrap``."""
    buckets = boto3.client("s3").list_buckets()["Buckets"]
    return [bucket["Name"] for bucket in buckets if not bucket["Name"].startswith("cdk-hnb659fds-")]
