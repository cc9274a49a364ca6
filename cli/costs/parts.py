"""Find the parts of a deployed cluster that cost money per hour, in its template.

The stack may contain more than the cluster, so start from the cluster's two groups and follow the template's
references: to launch templates, NAT gateways on the routes of the groups' subnets, and the addresses of both.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from bootstrap.aws.group_sizes import ClusterSizes
from bootstrap.contract import WORKER
from cli.aws.deployed_template import DeployedTemplate
from cli.errors import ClusterError
from stacks.prices.price_list import HOURS_PER_MONTH, PriceList
from stacks.prices.rate import BilledParts, Rate

_LAUNCH_TEMPLATE: Final = "AWS::EC2::LaunchTemplate"
_ADDRESS: Final = "AWS::EC2::EIP"
_BLOCK_OPTIONS: Final = {"MarketType": "capacity-block"}
_ROUTE_TABLE: Final = "AWS::EC2::RouteTable"


def billed_parts(template: DeployedTemplate, cluster_name: str, sizes: ClusterSizes) -> BilledParts:
    """Return the billed parts of a cluster whose groups have these sizes. Raises ClusterError."""
    groups = template.groups(cluster_name)
    nodes = template.named([group.get("LaunchTemplate") for group in groups.values()], _LAUNCH_TEMPLATE)
    nat_gateways = _nat_gateways(template, [group.get("VPCZoneIdentifier") for group in groups.values()])
    counts: Counter[str] = Counter()
    prepaid = None
    try:
        for node_type, group in groups.items():
            node = _launch_template_data(template, group)
            if node.get("InstanceMarketOptions") == _BLOCK_OPTIONS:
                prepaid = str(node["InstanceType"])
            counts[str(node["InstanceType"])] += sizes[node_type].desired_capacity
        return BilledParts(
            node_counts=counts,
            prepaid_type=prepaid,
            volume_gib=_volume(_launch_template_data(template, groups[WORKER])),
            nat_gateways=len(nat_gateways),
            # The master's user data contains its address.
            addresses=len(template.named([*nat_gateways.values(), *nodes.values()], _ADDRESS)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ClusterError(f"the template of stack {template.stack_name} has no usable node: {error!r}") from error


def _launch_template_data(template: DeployedTemplate, group: Mapping[str, Any]) -> Mapping[str, Any]:
    named = template.named(group.get("LaunchTemplate"), _LAUNCH_TEMPLATE)
    return dict(next(iter(named.values()), {}).get("LaunchTemplateData", {}))


def _nat_gateways(template: DeployedTemplate, subnets: object) -> Mapping[str, Mapping[str, Any]]:
    """Return the NAT gateways to which the subnets' route tables lead."""
    subnet_names = template.named(subnets, "AWS::EC2::Subnet").keys()
    tables = {
        name
        for properties in template.properties("AWS::EC2::SubnetRouteTableAssociation")
        if subnet_names & template.named(properties.get("SubnetId"), "AWS::EC2::Subnet").keys()
        for name in template.named(properties.get("RouteTableId"), _ROUTE_TABLE)
    }
    routes = [
        properties.get("NatGatewayId")
        for properties in template.properties("AWS::EC2::Route")
        if tables & template.named(properties.get("RouteTableId"), _ROUTE_TABLE).keys()
    ]
    return template.named(routes, "AWS::EC2::NatGateway")


def _volume(node: Mapping[str, Any]) -> int:
    return sum(int(mapping["Ebs"]["VolumeSize"]) for mapping in node.get("BlockDeviceMappings", []) if "Ebs" in mapping)


def paused_line(rate: Rate, prices: PriceList, *, has_unmetered_storage: bool = False) -> str:
    """Return what a paused cluster still costs, and the price.

    ``has_unmetered_storage`` means that it has a file system of its own whose size the rate does not include.
    """
    month = rate.fixed * HOURS_PER_MONTH
    storage = "" if rate.shared_storage is None else f", shared storage {rate.shared_storage:.3f}"
    parts = f"NAT gateway {rate.nat:.3f}, public addresses {rate.addresses:.3f}{storage}"
    kept = f"the bucket {prices.bucket_gb_month}"
    if has_unmetered_storage:
        kept += f" and the file system {prices.efs_gb_month}"
    return (
        f"still costs {rate.fixed:.3f} USD an hour, {month:.0f} a month ({parts}), "
        f"and {kept} per GB and month; {prices.describe()}; cdk destroy ends that"
    )
