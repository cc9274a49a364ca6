"""List what a cluster leaves in the account."""

import boto3


def left_over() -> dict[str, list[str]]:
    """List resources of the kinds that a cluster has, by id, except the account's default VPC."""
    ec2, iam = boto3.client("ec2"), boto3.client("iam")
    vpcs = ec2.describe_vpcs(Filters=[{"Name": "is-default", "Values": ["false"]}])["Vpcs"]
    reservations = ec2.describe_instances(Filters=[{"Name": "instance-state-name", "Values": ["pending", "running"]}])[
        "Reservations"
    ]
    groups = boto3.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    return {
        "vpcs": [v["VpcId"] for v in vpcs],
        "addresses": [a["PublicIp"] for a in ec2.describe_addresses()["Addresses"]],
        "nat gateways": [g["NatGatewayId"] for g in ec2.describe_nat_gateways()["NatGateways"]],
        "internet gateways": [
            g["InternetGatewayId"] for g in ec2.describe_internet_gateways()["InternetGateways"]
            if not any(a["VpcId"] not in {v["VpcId"] for v in vpcs} for a in g["Attachments"])
        ],
        "launch templates": [t["LaunchTemplateId"] for t in ec2.describe_launch_templates()["LaunchTemplates"]],
        "instances": [i["InstanceId"] for r in reservations for i in r["Instances"]],
        "groups": [g["AutoScalingGroupName"] for g in groups],
        "tables": boto3.client("dynamodb").list_tables()["TableNames"],
        "profiles": [p["InstanceProfileName"] for p in iam.list_instance_profiles()["InstanceProfiles"]],
    }  # fmt: skip


def stack_buckets() -> list[str]:
    """List buckets, except that of ``cdk bootstrap``."""
    buckets = boto3.client("s3").list_buckets()["Buckets"]
    return [bucket["Name"] for bucket in buckets if not bucket["Name"].startswith("cdk-hnb659fds-")]
