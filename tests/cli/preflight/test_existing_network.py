"""Test the check of an existing VPC, its subnets and its endpoints."""

from typing import Any

import pytest

from cli.preflight import endpoints, existing_network
from cli.preflight.nodes import offering
from cli.preflight.quotas import network
from tests.cli.preflight.stubbed_account import NEW_STACK, Account, Quota

VPC, MASTER, WORKERS = "vpc-01234567", "subnet-0000000a", "subnet-0000000b"
IGW = {"DestinationCidrBlock": "0.0.0.0/0", "GatewayId": "igw-1", "State": "active"}
NAT = {"DestinationCidrBlock": "0.0.0.0/0", "NatGatewayId": "nat-1", "State": "active"}
LOCAL = {"DestinationCidrBlock": "10.8.0.0/16", "GatewayId": "local", "State": "active"}


def subnet(name: str, *, free: int = 100, public: bool = False) -> dict[str, Any]:
    return {
        "SubnetId": name,
        "VpcId": VPC,
        "CidrBlock": "10.8.0.0/24",
        "AvailabilityZone": "eu-west-1b",
        "AvailableIpAddressCount": free,
        "MapPublicIpOnLaunch": public,
    }


class ExistingVpc:
    """An account with one VPC; a test changes what should differ from a good one, then runs the check."""

    def __init__(self, account: Account) -> None:
        self.account = account
        account.settings = {
            "cluster_name": "demo",
            "worker_count": 3,
            "vpc_id": VPC,
            "subnet_id": WORKERS,
            "master_subnet_id": MASTER,
        }
        self.subnets = [subnet(MASTER, public=True), subnet(WORKERS)]
        self.master_routes = [LOCAL, IGW]
        self.worker_routes = [LOCAL, NAT]
        self.endpoints: list[dict[str, Any]] = []
        self.groups: list[dict[str, Any]] = []
        """Security groups of the endpoints, in the order of the questions for the master's and the workers' subnet."""
        self.dns = {"enableDnsSupport": True, "enableDnsHostnames": True}

    def findings(self) -> list[str]:
        answers = self.account.answers
        answers("ec2", "describe_subnets", {"Subnets": self.subnets})
        self.account["cloudformation"].add_client_error("describe_stacks", **NEW_STACK)
        tables = [
            # The master's subnet has no table of its own, so the main one applies.
            {"RouteTableId": "rtb-main", "Routes": self.master_routes, "Associations": [{"Main": True}]},
            {"RouteTableId": "rtb-1", "Routes": self.worker_routes, "Associations": [{"SubnetId": WORKERS}]},
        ]
        answers("ec2", "describe_vpc_endpoints", {"VpcEndpoints": self.endpoints})
        answers("ec2", "describe_route_tables", {"RouteTables": tables})
        settings = self.account.settings
        if settings["worker_count"] and (settings["master_subnet_id"] or not settings.get("private")):
            answers("ec2", "describe_route_tables", {"RouteTables": tables})
        for group in self.groups:
            answers("ec2", "describe_security_groups", {"SecurityGroups": [group]})
        for name, value in self.dns.items():
            expected = {"VpcId": VPC, "Attribute": name}
            answers("ec2", "describe_vpc_attribute", {name[0].upper() + name[1:]: {"Value": value}}, expected)
        return [
            f"{found.level}: {found.sentence}: {found.fix}"
            for found in self.account.check(existing_network.check_subnets)
        ]


@pytest.fixture
def vpc(account: Account) -> ExistingVpc:
    return ExistingVpc(account)


def test_good_vpc_has_nothing_missing(vpc: ExistingVpc) -> None:
    assert vpc.findings() == [f"ok: {VPC} has room, routes and name servers for the nodes: "]


def test_cluster_with_its_own_network_makes_no_call(account: Account) -> None:
    assert account.check(existing_network.check_subnets) == []


def test_subnet_outside_the_vpc_is_a_problem(account: Account) -> None:
    account.settings = ExistingVpc(account).account.settings
    account.answers("ec2", "describe_subnets", {"Subnets": [subnet(WORKERS)]})
    found = account.finds(existing_network.check_subnets)
    assert (found.level, found.sentence) == ("problem", f"master_subnet_id {MASTER}: no subnet of {VPC}")


def test_subnets_with_too_few_free_addresses_are_problems(vpc: ExistingVpc) -> None:
    vpc.subnets = [subnet(MASTER, free=0, public=True), subnet(WORKERS, free=2)]
    assert [found.split(":")[1] for found in vpc.findings()] == [
        f" {WORKERS} has 2 free addresses, the cluster needs 3 there",
        f" {MASTER} has 0 free addresses, the cluster needs 1 there",
    ]


def test_master_in_the_workers_subnet_takes_one_address_more(vpc: ExistingVpc) -> None:
    vpc.account.settings["master_subnet_id"] = None
    vpc.subnets, vpc.worker_routes = [subnet(WORKERS, free=3, public=True)], [LOCAL, IGW]
    [found] = vpc.findings()
    assert "has 3 free addresses, the cluster needs 4 there" in found


def test_masters_subnet_without_internet_gateway_is_a_problem(vpc: ExistingVpc) -> None:
    vpc.master_routes = [LOCAL, NAT]
    [found] = vpc.findings()
    assert found.startswith(f"problem: {MASTER} has no default route to an internet gateway")


def test_default_route_to_nowhere_is_a_problem(vpc: ExistingVpc) -> None:
    vpc.worker_routes = [LOCAL, NAT | {"State": "blackhole"}]
    [found] = vpc.findings()
    assert f"the default route of {WORKERS} (rtb-1) leads to a target that no longer exists" in found


def test_workers_without_public_addresses_in_a_public_subnet_are_a_problem(vpc: ExistingVpc) -> None:
    vpc.worker_routes = [LOCAL, IGW]
    [found] = vpc.findings()
    assert f"modify-subnet-attribute --region eu-west-1 --subnet-id {WORKERS} --map-public-ip-on-launch" in found


def test_master_without_a_public_address_is_a_problem(vpc: ExistingVpc) -> None:
    """The agent associates the Elastic IP only later, and needs S3 and EC2 before that."""
    vpc.subnets = [subnet(MASTER), subnet(WORKERS)]
    [found] = vpc.findings()
    assert f"modify-subnet-attribute --region eu-west-1 --subnet-id {MASTER} --map-public-ip-on-launch" in found


def endpoint(service: str, **more: Any) -> dict[str, Any]:
    return {"ServiceName": f"com.amazonaws.eu-west-1.{service}", "State": "available", **more}


ALL = [
    endpoint("s3", RouteTableIds=["rtb-1"]),
    endpoint("dynamodb", RouteTableIds=["rtb-1"]),
    *(endpoint(service, PrivateDnsEnabled=True) for service in endpoints.INTERFACE_SERVICES),
]


def test_endpoints_stand_in_for_a_default_route(vpc: ExistingVpc) -> None:
    vpc.worker_routes, vpc.endpoints = [LOCAL], ALL
    assert [found.split(":")[0] for found in vpc.findings()] == ["ok"]


@pytest.mark.parametrize("private", [False, True])
def test_closed_endpoint_counts_behind_a_nat_gateway_too(vpc: ExistingVpc, *, private: bool) -> None:
    vpc.account.settings["private"] = private
    if private:
        vpc.master_routes = [LOCAL, NAT]
    group = {"GroupId": "sg-1", "IpPermissions": []}
    vpc.endpoints = [
        endpoint("logs", PrivateDnsEnabled=True, Groups=[{"GroupId": "sg-1"}], VpcEndpointId="vpce-1"),
        # Without a private name it takes no calls.
        endpoint("ec2", PrivateDnsEnabled=False, Groups=[{"GroupId": "sg-1"}], VpcEndpointId="vpce-2"),
    ]
    vpc.groups = [group, group]
    assert [found.partition(" in at port")[0] for found in vpc.findings()] == [
        f"problem: the endpoint vpce-1 of logs does not let {name} (10.8.0.0/24)" for name in (MASTER, WORKERS)
    ]


@pytest.mark.parametrize("missing", range(len(ALL)))
def test_missing_endpoint_is_a_problem_with_its_command(vpc: ExistingVpc, missing: int) -> None:
    name = ALL[missing]["ServiceName"]
    vpc.worker_routes, vpc.endpoints = [LOCAL], [available for available in ALL if available["ServiceName"] != name]
    [found] = vpc.findings()
    assert f"no {'gateway' if missing < 2 else 'interface'} endpoint of {name.split('.')[-1]}: " in found
    assert f"create-vpc-endpoint --region eu-west-1 --vpc-id {VPC} --service-name {name} " in found


def test_missing_endpoints_of_secrets_services_are_problems(vpc: ExistingVpc) -> None:
    vpc.worker_routes, vpc.endpoints = [LOCAL], ALL
    vpc.account.settings["secrets"] = ("ssm:/team/wandb", "secretsmanager:team/hub")
    first, second = vpc.findings()
    assert "no interface endpoint of ssm: " in first
    assert "no interface endpoint of secretsmanager: " in second


@pytest.mark.parametrize("useless", [{"RouteTableIds": ["rtb-main"]}, {"RouteTableIds": ["rtb-1"], "State": "pending"}])
def test_endpoint_that_does_not_serve_the_subnet_counts_as_missing(vpc: ExistingVpc, useless: dict[str, Any]) -> None:
    vpc.worker_routes, vpc.endpoints = [LOCAL], [endpoint("s3") | useless, *ALL[1:]]
    [found] = vpc.findings()
    assert "no gateway endpoint of s3" in found


@pytest.mark.parametrize(
    ("attribute", "option"),
    [("enableDnsSupport", "--enable-dns-support"), ("enableDnsHostnames", "--enable-dns-hostnames")],
)
def test_vpc_that_does_not_resolve_names_is_a_problem_with_a_fix(vpc: ExistingVpc, attribute: str, option: str) -> None:
    vpc.dns[attribute] = False
    [found] = vpc.findings()
    assert found == (
        f"problem: {VPC} has {attribute} off: aws ec2 modify-vpc-attribute --region eu-west-1 --vpc-id {VPC} {option}"
    )


def test_existing_vpc_needs_one_elastic_ip_and_no_vpc(vpc: ExistingVpc, account: Account, quota: Quota) -> None:
    account["cloudformation"].add_client_error("describe_stacks", **NEW_STACK)
    account.answers("ec2", "describe_addresses", {"Addresses": [{}, {}, {}, {}]})
    quota("ec2", "L-0263D0A3", 5)
    assert account.finds(network.check_elastic_ip_quota).level == "ok"
    account.answers("ec2", "describe_vpcs", {"Vpcs": [{"VpcId": VPC}]})
    assert str(account.finds(network.check_vpc_quota)).endswith(f"the cluster goes into {VPC}")


def test_type_is_looked_for_in_the_zone_of_the_subnet(vpc: ExistingVpc, account: Account) -> None:
    account["cloudformation"].add_client_error("describe_stacks", **NEW_STACK)
    account.answers("ec2", "describe_subnets", {"Subnets": [subnet(WORKERS)]})
    having = [{"Location": "eu-west-1c"}]
    account.answers("ec2", "describe_instance_type_offerings", {"InstanceTypeOfferings": having})
    found = account.finds(offering.check_offering)
    assert (found.sentence, found.fix) == (
        "g6.xlarge is not offered in eu-west-1b",
        "choose a subnet_id in eu-west-1c",
    )


def test_private_cluster_needs_no_public_subnet_and_no_address(vpc: ExistingVpc) -> None:
    vpc.account.settings |= {"private": True, "master_subnet_id": None}
    assert vpc.findings() == [f"ok: {VPC} has room, routes and name servers for the nodes: "]


def test_private_cluster_in_an_existing_vpc_needs_no_elastic_ip(account: Account) -> None:
    account.settings = ExistingVpc(account).account.settings | {"private": True}
    [found] = account.check(network.check_elastic_ip_quota)
    assert (found.level, found.sentence) == ("ok", "a private cluster in an existing VPC needs none")


def test_public_subnet_is_a_problem_for_a_private_cluster(vpc: ExistingVpc) -> None:
    vpc.account.settings["private"] = True
    [found] = vpc.findings()
    assert found.startswith(f"problem: {MASTER} leads to an internet gateway, where nodes without a public address")


def test_each_missing_endpoint_is_reported_with_the_command_to_create_it(vpc: ExistingVpc) -> None:
    vpc.account.settings |= {
        "private": True,
        "master_subnet_id": None,
        "frameworks": ("mxnet",),
        "requirements": __file__,
    }
    vpc.worker_routes, vpc.endpoints = [LOCAL], []
    frameworks, requirements, *found = vpc.findings()
    assert requirements.startswith(f"warning: {WORKERS} has no default route: nodes reach no PyPI for requirements: ")
    assert "docs/use/environment.md#packages-without-internet" in requirements
    assert frameworks.startswith(
        f"problem: {WORKERS} has no default route, and frameworks (mxnet) are fetched from the int"
    )
    names = ["s3", "dynamodb", "autoscaling", "cloudformation", "logs", "ec2", "ssm", "ssmmessages"]
    assert len(found) == len(names)
    for line, name in zip(found, names, strict=True):
        kind = "gateway" if name in ("s3", "dynamodb") else "interface"
        assert line.startswith(f"problem: {WORKERS} has no default route, and {VPC} no {kind} endpoint of {name}: ")
        assert (
            f"create-vpc-endpoint --region eu-west-1 --vpc-id {VPC} --service-name com.amazonaws.eu-west-1.{name} "
            in line
        )


def test_lustre_without_internet_needs_the_fsx_endpoint(vpc: ExistingVpc) -> None:
    vpc.account.settings |= {"private": True, "master_subnet_id": None, "shared_storage": "lustre:fs-0123456789abcdef0"}
    vpc.worker_routes, vpc.endpoints = [LOCAL], []
    assert [line for line in vpc.findings() if "interface endpoint of fsx: " in line]


def test_private_cluster_uses_existing_endpoints(vpc: ExistingVpc) -> None:
    vpc.account.settings |= {"private": True, "master_subnet_id": None}
    vpc.worker_routes = [LOCAL]
    names = ["autoscaling", "cloudformation", "logs", "ec2", "ssm", "ssmmessages"]
    vpc.endpoints = [
        {"ServiceName": f"com.amazonaws.eu-west-1.{name}", "State": "available", "RouteTableIds": ["rtb-1"]}
        for name in ("s3", "dynamodb")
    ] + [
        {"ServiceName": f"com.amazonaws.eu-west-1.{name}", "State": "available", "PrivateDnsEnabled": True}
        for name in names
    ]
    assert vpc.findings() == [f"ok: {VPC} has room, routes and name servers for the nodes: "]


def test_in_china_some_endpoints_have_names_of_their_own(vpc: ExistingVpc) -> None:
    vpc.account.caller = vpc.account.caller.replace("arn:aws:", "arn:aws-cn:")
    vpc.worker_routes, vpc.endpoints = [LOCAL], []
    names = [found.partition("--service-name ")[2].split()[0].partition(".eu-west-1.") for found in vpc.findings()]
    assert {service: prefix for prefix, _, service in names} == {
        **dict.fromkeys(("s3", "dynamodb", "logs"), "com.amazonaws"),
        **dict.fromkeys(("autoscaling", "cloudformation"), "cn.com.amazonaws"),
    }
