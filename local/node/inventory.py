"""Read what exists from EC2's API, as data for the firewall, the metadata and the nodes."""

import base64
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface, ip_network
from typing import TYPE_CHECKING, Any

from local.storage.mount_targets import MountTarget

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_ec2 import EC2Client

log = logging.getLogger(__name__)
_TARGET_STATES = {
    "Pending": "InService",
    "Terminating": "Terminated",
    "EnteringStandby": "Standby",
    "Detaching": "Detached",
}
"""Lifecycle state to which each transient state of a group's instance leads ("Retrieve the target lifecycle state
through instance metadata", Amazon EC2 Auto Scaling User Guide)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interface:
    """A network interface of an instance; the node has a link only for the primary one."""

    interface_id: str
    mac: str
    network_card_index: int
    device_index: int
    interface_type: str
    """``interface``, ``efa`` or ``efa-only``."""
    address: str | None
    """Private address; None for an EFA-only interface."""
    group_ids: tuple[str, ...]

    @property
    def has_efa(self) -> bool:
        return self.interface_type in ("efa", "efa-only")


@dataclass(frozen=True, kw_only=True, slots=True)
class Instance:
    """A running instance; ``address`` includes its subnet's prefix length."""

    instance_id: str
    address: IPv4Interface
    public_address: str | None
    internet_address: str | None
    """Its address on the internet: its public one, the NAT gateway's, or None without a route."""
    group_ids: tuple[str, ...]
    instance_type: str
    image_id: str
    subnet_id: str
    vpc_id: str
    zone: str
    key_name: str | None
    profile_arn: str | None
    target_state: str | None = None
    """Lifecycle state that its Auto Scaling group wants; None without a group."""
    interfaces: tuple[Interface, ...] = ()
    """Its network interfaces, the primary one first."""
    lifecycle: str = "on-demand"
    """Purchasing option, in the metadata's words: on-demand, spot or capacity-block."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SecurityGroupRule:
    """One permission of a security group. ``protocol`` "-1" means all; ports are inclusive."""

    protocol: str
    from_port: int
    to_port: int
    cidrs: tuple[str, ...]
    group_ids: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SecurityGroup:
    """A security group of a VPC."""

    group_id: str
    vpc_id: str
    ingress: tuple[SecurityGroupRule, ...]
    egress: tuple[SecurityGroupRule, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Inventory:
    """State of the control plane at one time."""

    instances: tuple[Instance, ...]
    security_groups: tuple[SecurityGroup, ...]
    unreadable: frozenset[str] = frozenset()
    """Instances with incomplete records, whose nodes the data plane leaves unchanged."""
    mount_targets: tuple[MountTarget, ...] = ()
    """Mount targets of file systems that can be reached."""
    vpcs_with_endpoints: frozenset[str] = frozenset()
    """VPCs in which some services of AWS can be reached without the internet."""


def _rule(permission: Mapping[str, Any], cidrs_by_prefix_list: Mapping[str, tuple[str, ...]]) -> SecurityGroupRule:
    cidrs = {ip_range["CidrIp"] for ip_range in permission.get("IpRanges", [])}
    for prefix_list in permission.get("PrefixListIds", []):
        cidrs.update(cidrs_by_prefix_list[prefix_list["PrefixListId"]])
    return SecurityGroupRule(
        protocol=permission["IpProtocol"],
        from_port=permission.get("FromPort", 0),
        to_port=permission.get("ToPort", 65535),
        cidrs=tuple(sorted(cidrs)),
        group_ids=tuple(sorted(pair["GroupId"] for pair in permission.get("UserIdGroupPairs", []))),
    )


def _default_routes(ec2: "EC2Client") -> dict[str, Mapping[str, Any]]:
    """Return the default route by subnet, and by VPC for its main table; {} if there is none.

    The main table applies to subnets without their own table ("Subnet route tables", Amazon VPC User Guide).
    """
    routes: dict[str, Mapping[str, Any]] = {}
    for table in ec2.describe_route_tables()["RouteTables"]:
        default: Mapping[str, Any] = next(
            (dict(route) for route in table["Routes"] if route.get("DestinationCidrBlock") == "0.0.0.0/0"), {}
        )
        for association in table["Associations"]:
            if "SubnetId" in association:
                routes[association["SubnetId"]] = default
            elif association.get("Main"):
                routes[table["VpcId"]] = default
    return routes


def _nat_addresses(ec2: "EC2Client") -> dict[str, str]:
    return {
        gateway["NatGatewayId"]: address["PublicIp"]
        for gateway in ec2.describe_nat_gateways()["NatGateways"]
        for address in gateway["NatGatewayAddresses"][:1]
        if gateway["State"] == "available" and "PublicIp" in address
    }


def target_state(lifecycle_state: str) -> str:
    """Return the steady state of a group's instance, or the one to which it is moving."""
    state = lifecycle_state.partition(":")[0]
    return _TARGET_STATES.get(state, state)


def _target_states(autoscaling: "AutoScalingClient") -> dict[str, str]:
    instances = autoscaling.describe_auto_scaling_instances()["AutoScalingInstances"]
    return {instance["InstanceId"]: target_state(instance["LifecycleState"]) for instance in instances}


def _vpcs_with_endpoints(ec2: "EC2Client") -> frozenset[str]:
    endpoints = ec2.describe_vpc_endpoints()["VpcEndpoints"]
    return frozenset(endpoint["VpcId"] for endpoint in endpoints if endpoint["State"].lower() == "available")


def _cidrs_by_prefix_list(ec2: "EC2Client", groups: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Return the CIDR blocks of each prefix list that a rule names, by the list's ID."""
    named = {
        prefix_list["PrefixListId"]
        for group in groups
        for permission in (*group["IpPermissions"], *group["IpPermissionsEgress"])
        for prefix_list in permission.get("PrefixListIds", [])
    }
    return {
        list_id: tuple(entry["Cidr"] for entry in ec2.get_managed_prefix_list_entries(PrefixListId=list_id)["Entries"])
        for list_id in sorted(named)
    }


def _security_groups(ec2: "EC2Client") -> tuple[SecurityGroup, ...]:
    groups: list[Mapping[str, Any]] = [dict(group) for group in ec2.describe_security_groups()["SecurityGroups"]]
    cidrs = _cidrs_by_prefix_list(ec2, groups)
    return tuple(
        SecurityGroup(
            group_id=group["GroupId"],
            vpc_id=group["VpcId"],
            ingress=tuple(_rule(permission, cidrs) for permission in group["IpPermissions"]),
            egress=tuple(_rule(permission, cidrs) for permission in group["IpPermissionsEgress"]),
        )
        for group in groups
    )


def _instance(
    item: Mapping[str, Any], *, prefix_length: int, internet_address: str | None, target_state: str | None
) -> Instance:
    return Instance(
        instance_id=item["InstanceId"],
        address=IPv4Interface(f"{item['PrivateIpAddress']}/{prefix_length}"),
        public_address=item.get("PublicIpAddress") or None,
        internet_address=internet_address,
        group_ids=tuple(sorted(group["GroupId"] for group in item["SecurityGroups"])),
        instance_type=item["InstanceType"],
        image_id=item["ImageId"],
        subnet_id=item["SubnetId"],
        vpc_id=item["VpcId"],
        zone=item["Placement"]["AvailabilityZone"],
        key_name=item.get("KeyName") or None,
        profile_arn=item.get("IamInstanceProfile", {}).get("Arn"),
        target_state=target_state,
        interfaces=_interfaces(item),
        lifecycle=item.get("InstanceLifecycle", "on-demand"),
    )


def _interfaces(item: Mapping[str, Any]) -> tuple[Interface, ...]:
    described = (
        Interface(
            interface_id=interface["NetworkInterfaceId"],
            mac=interface["MacAddress"],
            network_card_index=interface["Attachment"]["NetworkCardIndex"],
            device_index=interface["Attachment"]["DeviceIndex"],
            interface_type=interface["InterfaceType"],
            address=interface.get("PrivateIpAddress") or None,
            group_ids=tuple(sorted(group["GroupId"] for group in interface["Groups"])),
        )
        for interface in item["NetworkInterfaces"]
    )
    return tuple(sorted(described, key=lambda interface: (interface.network_card_index, interface.device_index)))


def _internet_address(
    item: Mapping[str, Any], *, routes: Mapping[str, Mapping[str, Any]], nat_addresses: Mapping[str, str]
) -> str | None:
    """Return the address from which an instance's packets reach the internet; None without a default route."""
    route = routes.get(item["SubnetId"], routes.get(item["VpcId"], {}))
    if "NatGatewayId" in route:
        return nat_addresses.get(route["NatGatewayId"])
    return (item.get("PublicIpAddress") or None) if "GatewayId" in route else None


def read_inventory(ec2: "EC2Client", autoscaling: "AutoScalingClient") -> Inventory:
    """Read the running instances and the security groups, with few calls."""
    subnets = ec2.describe_subnets()["Subnets"]
    prefix_lengths = {subnet["SubnetId"]: ip_network(subnet["CidrBlock"]).prefixlen for subnet in subnets}
    routes, nat_addresses, target_states = _default_routes(ec2), _nat_addresses(ec2), _target_states(autoscaling)
    reservations = ec2.describe_instances(Filters=[{"Name": "instance-state-name", "Values": ["pending", "running"]}])[
        "Reservations"
    ]
    items: list[Mapping[str, Any]] = [dict(item) for reservation in reservations for item in reservation["Instances"]]
    instances, unreadable = [], set()
    for item in items:
        instance_id = item["InstanceId"]
        try:
            instance = _instance(
                item,
                prefix_length=prefix_lengths[item["SubnetId"]],
                internet_address=_internet_address(item, routes=routes, nat_addresses=nat_addresses),
                target_state=target_states.get(instance_id),
            )
        except KeyError as error:
            log.warning("%s: its record has no %s", instance_id, error)
            unreadable.add(instance_id)
        else:
            instances.append(instance)
    return Inventory(
        instances=tuple(instances),
        security_groups=_security_groups(ec2),
        unreadable=frozenset(unreadable),
        vpcs_with_endpoints=_vpcs_with_endpoints(ec2),
    )


def read_user_data(ec2: "EC2Client", instance_id: str) -> bytes:
    """Return an instance's user data, decoded; empty if it has none."""
    attribute = ec2.describe_instance_attribute(InstanceId=instance_id, Attribute="userData")
    return base64.b64decode(attribute["UserData"].get("Value", ""))


def read_gpu_models(ec2: "EC2Client", instance_type: str) -> tuple[str, ...]:
    """Return the model of each NVIDIA GPU of an instance type."""
    # The client's type lists only the instance types known at its release.
    instance_types: list[Any] = [instance_type]
    gpus = [
        gpu
        for description in ec2.describe_instance_types(InstanceTypes=instance_types)["InstanceTypes"]
        for gpu in description.get("GpuInfo", {}).get("Gpus", [])
    ]
    return tuple(gpu["Name"] for gpu in gpus if gpu["Manufacturer"] == "NVIDIA" for _ in range(gpu["Count"]))
