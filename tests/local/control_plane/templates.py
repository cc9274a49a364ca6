"""Build parts of templates as the CDK writes them."""

from typing import Any

from local.control_plane.ec2.images import FAMILIES, image_id
from tests.local.control_plane.harness import REGION


def reference(name: str) -> dict[str, str]:
    return {"Ref": name}


def attribute(name: str, of: str) -> dict[str, list[str]]:
    return {"Fn::GetAtt": [of, name]}


def network() -> dict[str, Any]:
    """Return a VPC with a public and a private subnet."""
    subnet: dict[str, Any] = {"VpcId": reference("Vpc"), "AvailabilityZone": f"{REGION}a"}
    return {
        "Vpc": resource("EC2::VPC", CidrBlock="10.0.0.0/16", Tags=[{"Key": "Name", "Value": "network"}]),
        "Public": resource("EC2::Subnet", CidrBlock="10.0.0.0/24", MapPublicIpOnLaunch=True, **subnet),
        "Private": resource("EC2::Subnet", CidrBlock="10.0.1.0/24", MapPublicIpOnLaunch=False, **subnet),
        "Gateway": resource("EC2::InternetGateway"),
        "Attachment": resource(
            "EC2::VPCGatewayAttachment", VpcId=reference("Vpc"), InternetGatewayId=reference("Gateway")
        ),
        "PublicTable": resource("EC2::RouteTable", VpcId=reference("Vpc")),
        "PublicAssociation": resource(
            "EC2::SubnetRouteTableAssociation",
            RouteTableId=reference("PublicTable"),
            SubnetId=reference("Public"),
        ),
        "PublicRoute": resource(
            "EC2::Route",
            depends_on="Attachment",
            RouteTableId=reference("PublicTable"),
            DestinationCidrBlock="0.0.0.0/0",
            GatewayId=reference("Gateway"),
        ),
        "Address": resource("EC2::EIP", Domain="vpc"),
        "Nat": resource(
            "EC2::NatGateway",
            depends_on="PublicRoute",
            SubnetId=reference("Public"),
            AllocationId=attribute("AllocationId", "Address"),
        ),
        "PrivateTable": resource("EC2::RouteTable", VpcId=reference("Vpc")),
        "PrivateAssociation": resource(
            "EC2::SubnetRouteTableAssociation",
            RouteTableId=reference("PrivateTable"),
            SubnetId=reference("Private"),
        ),
        "PrivateRoute": resource(
            "EC2::Route",
            RouteTableId=reference("PrivateTable"),
            DestinationCidrBlock="0.0.0.0/0",
            NatGatewayId=reference("Nat"),
        ),
        "S3": resource(
            "EC2::VPCEndpoint",
            ServiceName=f"com.amazonaws.{REGION}.s3",
            VpcEndpointType="Gateway",
            VpcId=reference("Vpc"),
            RouteTableIds=[reference("PublicTable"), reference("PrivateTable")],
        ),
        "Security": resource(
            "EC2::SecurityGroup",
            VpcId=reference("Vpc"),
            GroupDescription="members",
            SecurityGroupIngress=[ssh_from("192.0.2.0/24")],
            SecurityGroupEgress=[{"IpProtocol": "-1", "CidrIp": "0.0.0.0/0"}],
        ),
    }


def second_subnet() -> dict[str, Any]:
    """Return a private subnet in another zone."""
    return resource("EC2::Subnet", VpcId=reference("Vpc"), AvailabilityZone=f"{REGION}b", CidrBlock="10.0.2.0/24")


def ssh_from(cidr: str) -> dict[str, Any]:
    return {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "CidrIp": cidr}


def resource(kind: str, *, depends_on: str | list[str] | None = None, **properties: Any) -> dict[str, Any]:
    made = {"Type": f"AWS::{kind}", "Properties": properties}
    return made if depends_on is None else made | {"DependsOn": depends_on}


def role() -> dict[str, Any]:
    """Return a role and its instance profile."""
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "ec2.amazonaws.com"}}
    document = {"Version": "2012-10-17", "Statement": [trust]}
    return {
        "Role": resource("IAM::Role", AssumeRolePolicyDocument=document),
        "Profile": resource("IAM::InstanceProfile", Roles=[reference("Role")]),
        "Policy": resource(
            "IAM::Policy",
            PolicyName="members",
            Roles=[reference("Role")],
            PolicyDocument={
                "Version": "2012-10-17",
                "Statement": [{"Effect": "Allow", "Action": "ec2:DescribeInstances", "Resource": "*"}],
            },
        ),
    }


USER_DATA = "#!/bin/bash\necho a node\n"


def launch_template(**data: Any) -> dict[str, Any]:
    """Return a launch template as the CDK writes it for a group of nodes."""
    settings = {
        "ImageId": image_id(FAMILIES[0]),
        "InstanceType": "c5.large",
        "UserData": {"Fn::Base64": USER_DATA},
        "SecurityGroupIds": [attribute("GroupId", "Security")],
        "IamInstanceProfile": {"Arn": attribute("Arn", "Profile")},
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 2},
        "BlockDeviceMappings": [
            {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 120, "VolumeType": "gp3", "Encrypted": True}}
        ],
        "TagSpecifications": [
            {"ResourceType": "instance", "Tags": [{"Key": "Name", "Value": "node"}]},
            {"ResourceType": "volume", "Tags": [{"Key": "Name", "Value": "disk"}]},
        ],
    }
    return resource("EC2::LaunchTemplate", LaunchTemplateData=settings | data)


def hook(seconds: int, name: str = "drain", result: str = "CONTINUE") -> dict[str, Any]:
    """Return a terminating lifecycle hook for a group's inline list."""
    return {
        "LifecycleHookName": name,
        "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
        "HeartbeatTimeout": seconds,
        "DefaultResult": result,
    }


def group(
    size: int, subnet: str = "Private", signals: int = 0, timeout: str = "PT15M", **properties: Any
) -> dict[str, Any]:
    """Return a group of nodes, launched from the template ``Template``."""
    settings = {
        "MinSize": str(size),
        "MaxSize": str(size),
        "DesiredCapacity": str(size),
        "VPCZoneIdentifier": [reference(subnet)],
        "LaunchTemplate": {
            "LaunchTemplateId": reference("Template"),
            "Version": attribute("LatestVersionNumber", "Template"),
        },
        "Tags": [{"Key": "cluster", "Value": "test", "PropagateAtLaunch": True}],
    }
    made = resource(
        "AutoScaling::AutoScalingGroup",
        # The route is created first and deleted last: the gateway cannot be detached while public addresses are in use.
        depends_on=["PublicRoute", "PublicAssociation"] if subnet == "Public" else None,
        **settings | properties,
    )
    policy = {"CreationPolicy": {"ResourceSignal": {"Count": signals, "Timeout": timeout}}}
    return made | policy if signals else made


def cluster(**groups: dict[str, Any]) -> dict[str, Any]:
    """Return a template with a network, a role, a launch template and these groups."""
    return {"Resources": network() | role() | {"Template": launch_template()} | groups}
