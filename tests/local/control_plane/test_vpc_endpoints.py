"""Test which calls of nodes arrive, and that preflight names exactly the endpoint that one of them lacks."""

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import boto3
import moto
import pytest
from botocore.session import Session

from cli.aws.clients import Clients
from cli.preflight import existing_network
from cli.preflight.target import PreflightTarget
from local.control_plane.api_request import ApiRequest
from local.control_plane.vpc_endpoints import is_reachable
from local.network.addresses import API_ADDRESS, ENDPOINT_SOURCES
from stacks.settings.props import ClusterProps
from tests.endpoints import SERVICES, Endpoints, https_from
from tests.local.control_plane.harness import REGION, Aws, Role

BLOCK = "10.8.0.0/24"
BEHIND_ENDPOINTS = str(ENDPOINT_SOURCES[1])
PUBLIC = "54.214.0.9"


def signature(access_key: str, service: str) -> str:
    return f"AWS4-HMAC-SHA256 Credential={access_key}/20261123/{REGION}/{service}/aws4_request, SignedHeaders=host"


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """A VPC without internet that has a node and every endpoint; a test changes what it is about."""

    endpoints: Endpoints
    ids: dict[str, str]
    """The endpoints' IDs by service."""
    access_key: str
    """Key of the node's role."""
    settings: dict[str, Any]
    clients: Clients

    @classmethod
    def make(cls, ec2: Any) -> "Network":
        vpc_id = ec2.create_vpc(CidrBlock="10.8.0.0/16")["Vpc"]["VpcId"]
        ec2.modify_vpc_attribute(VpcId=vpc_id, EnableDnsHostnames={"Value": True})
        subnet = ec2.create_subnet(VpcId=vpc_id, CidrBlock=BLOCK)["Subnet"]["SubnetId"]
        [table] = ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc_id]}])["RouteTables"]
        group = ec2.create_security_group(GroupName="endpoints", Description="endpoints", VpcId=vpc_id)["GroupId"]
        ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=https_from(BLOCK))
        made = Endpoints(
            ec2=ec2, vpc_id=vpc_id, subnet=subnet, route_table_id=table["RouteTableId"], security_group_id=group
        )
        node = ec2.run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1, SubnetId=subnet)["Instances"][0]
        role = f"arn:aws:iam::{node['NetworkInterfaces'][0]['OwnerId']}:role/node"
        keys = boto3.client("sts").assume_role(RoleArn=role, RoleSessionName=node["InstanceId"])["Credentials"]
        settings = {"cluster_name": "demo", "worker_count": 1, "private": True, "vpc_id": vpc_id, "subnet_id": subnet}
        return cls(
            endpoints=made,
            ids=made.create(),
            access_key=keys["AccessKeyId"],
            settings=settings,
            clients=Clients(Session(), REGION),
        )

    def is_reachable(self, service: str, *, source: str = BEHIND_ENDPOINTS) -> bool:
        signed = {"HTTP_AUTHORIZATION": signature(self.access_key, service)}
        return is_reachable(ApiRequest({"REMOTE_ADDR": source, **signed}, b""))

    def problems(self) -> list[str]:
        target = PreflightTarget(
            clients=self.clients,
            props=ClusterProps(**self.settings),
            cdk_context={},
            account="1",
            caller="arn:aws:iam::1:user/ann",
        )
        return [str(finding) for finding in existing_network.check_subnets(target) if finding.level == "problem"]


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    for name, value in {"DEFAULT_REGION": REGION, "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    with moto.mock_aws():
        yield Network.make(boto3.client("ec2"))


def test_preflight_names_each_endpoint_that_calls_need(network: Network) -> None:
    assert network.problems() == []
    for missing in SERVICES:
        assert [service for service in SERVICES if not network.is_reachable(service)] == []
        network.endpoints.delete([network.ids[missing]])
        [problem] = network.problems()
        assert f" endpoint of {missing}: aws ec2 create-vpc-endpoint " in problem
        assert [service for service in SERVICES if not network.is_reachable(service)] == [missing]
        network.ids.update(network.endpoints.create([missing]))


def test_endpoint_without_ingress_drops_calls_despite_a_nat_gateway(network: Network) -> None:
    made, group = network.endpoints, network.endpoints.security_group_id
    made.ec2.revoke_security_group_ingress(GroupId=group, IpPermissions=https_from(BLOCK))
    # As AWS's default group does: only its own members, which nodes are not.
    own = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}]
    made.ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=own)
    assert [service for service in SERVICES if network.is_reachable(service)] == ["s3", "dynamodb"]
    assert not network.is_reachable("logs", source=PUBLIC)
    problems = network.problems()
    assert len(problems) == len(SERVICES) - 2
    mend = f"authorize-security-group-ingress --region {REGION} --group-id {group} --protocol tcp --port 443"
    assert all(f"({BLOCK}) in at port 443: aws ec2 {mend} --cidr {BLOCK}" in problem for problem in problems)


def test_call_leaves_only_to_what_the_nodes_groups_allow(network: Network) -> None:
    ec2 = network.endpoints.ec2
    filters: Any = [
        {"Name": "vpc-id", "Values": [network.endpoints.vpc_id]},
        {"Name": "group-name", "Values": ["default"]},
    ]
    [group] = ec2.describe_security_groups(Filters=filters)["SecurityGroups"]
    lists = {
        each["PrefixListName"].rpartition(".")[2]: each["PrefixListId"]
        for each in ec2.describe_managed_prefix_lists()["PrefixLists"]
    }
    interfaces = [service for service in SERVICES if service not in ("s3", "dynamodb")]

    def reachable(**peer: Any) -> list[str]:
        permission: Any = [{"IpProtocol": "tcp", "FromPort": 0, "ToPort": 65535, **peer}]
        ec2.authorize_security_group_egress(GroupId=group["GroupId"], IpPermissions=permission)
        found = [service for service in (*SERVICES, "sts") if network.is_reachable(service, source=PUBLIC)]
        ec2.revoke_security_group_egress(GroupId=group["GroupId"], IpPermissions=permission)
        return found

    ec2.revoke_security_group_egress(GroupId=group["GroupId"], IpPermissions=group["IpPermissionsEgress"])
    assert reachable(IpRanges=[{"CidrIp": "10.9.0.0/16"}]) == []
    assert reachable(IpRanges=[{"CidrIp": "10.8.0.0/16"}]) == interfaces
    for service in ("s3", "dynamodb"):
        assert reachable(PrefixListIds=[{"PrefixListId": lists[service]}]) == [service]
    assert reachable(IpRanges=[{"CidrIp": f"{API_ADDRESS}/32"}]) == ["sts"]


def test_without_an_endpoint_a_call_needs_the_internet(network: Network) -> None:
    assert not network.is_reachable("sts")
    assert network.is_reachable("sts", source=PUBLIC)
    assert network.is_reachable("sts", source="127.0.0.1"), "the user's machine is outside"
    network.endpoints.ec2.create_vpc_endpoint(
        VpcId=network.endpoints.vpc_id,
        ServiceName=f"com.amazonaws.{REGION}.sts",
        VpcEndpointType="Interface",
        SubnetIds=[network.endpoints.subnet],
        SecurityGroupIds=[network.endpoints.security_group_id],
        PrivateDnsEnabled=False,
    )
    assert not network.is_reachable("sts"), "the service's own name does not lead to the endpoint"


def test_call_that_does_not_arrive_is_never_answered(aws: Aws, role: Role) -> None:
    ec2 = aws.client("ec2")
    vpc_id = ec2.create_vpc(CidrBlock="10.8.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc_id, CidrBlock=BLOCK, AvailabilityZone="us-east-1a")["Subnet"]["SubnetId"]
    image = ec2.describe_images()["Images"][0]["ImageId"]
    node = ec2.run_instances(ImageId=image, MinCount=1, MaxCount=1, SubnetId=subnet)["Instances"][0]["InstanceId"]
    # Without a group it gets the VPC's default one, and without a type it is for a gateway.
    kinds = {"logs": {"VpcEndpointType": "Interface", "SubnetIds": [subnet]}, "s3": {}}
    made = {
        service: ec2.create_vpc_endpoint(VpcId=vpc_id, ServiceName=f"com.amazonaws.{REGION}.{service}", **kind)[
            "VpcEndpoint"
        ]
        for service, kind in kinds.items()
    }
    assert [endpoint["PrivateDnsEnabled"] for endpoint in made.values()] == [True, False]
    [group] = made["logs"]["Groups"]
    assert group["GroupName"] == "default"
    key = role.session(node)["aws_access_key_id"]

    def status(*, timeout_s: float) -> int:
        # Not the user's address: a node's.
        connection = http.client.HTTPConnection(
            str(urlsplit(aws.url).netloc), timeout=timeout_s, source_address=("127.0.0.2", 0)
        )
        headers = {"Authorization": signature(key, "logs"), "X-Amz-Target": "Logs_20140328.DescribeLogGroups"}
        connection.request("POST", "/", body=json.dumps({}), headers=headers)
        try:
            return connection.getresponse().status
        finally:
            connection.close()

    with pytest.raises(TimeoutError):
        status(timeout_s=0.5)
    ec2.authorize_security_group_ingress(GroupId=group["GroupId"], IpPermissions=https_from(BLOCK))
    assert status(timeout_s=60) in (200, 400)
    ec2.terminate_instances(InstanceIds=[node])
    ec2.delete_vpc_endpoints(VpcEndpointIds=[endpoint["VpcEndpointId"] for endpoint in made.values()])
    ec2.delete_subnet(SubnetId=subnet)
    ec2.delete_vpc(VpcId=vpc_id)
