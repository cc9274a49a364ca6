"""Find the parts of a deployed cluster that cost money by the hour, in its template."""

from collections.abc import Mapping
from typing import Any, Final

from bootstrap.aws.group_sizes import ClusterSizes
from cli.aws.deployed_template import DeployedTemplate
from cli.errors import ClusterError
from stacks.prices.price_list import HOURS_PER_MONTH, PriceList
from stacks.prices.rate import BilledParts, Rate

_LAUNCH_TEMPLATE: Final = "AWS::EC2::LaunchTemplate"


def billed_parts(template: DeployedTemplate, sizes: ClusterSizes) -> BilledParts:
    """Return the parts of a cluster whose groups have these sizes. Raises ClusterError."""
    node = next(template.properties(_LAUNCH_TEMPLATE), {}).get("LaunchTemplateData", {})
    try:
        return BilledParts(
            nodes=sum(size.desired for size in sizes.values()),
            instance_type=str(node["InstanceType"]),
            volume_gib=_volume(node),
            nat_gateways=sum(1 for _ in template.properties("AWS::EC2::NatGateway")),
            addresses=sum(1 for _ in template.properties("AWS::EC2::EIP")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ClusterError(f"the template of stack {template.stack_name} has no usable node: {error!r}") from error


def _volume(node: Mapping[str, Any]) -> int:
    return sum(int(each["Ebs"]["VolumeSize"]) for each in node.get("BlockDeviceMappings", []) if "Ebs" in each)


def paused_line(rate: Rate, prices: PriceList) -> str:
    """Return what a paused cluster still costs, with its price."""
    month = rate.paused * HOURS_PER_MONTH
    parts = f"NAT gateway {rate.nat:.3f}, public addresses {rate.addresses:.3f}"
    bucket = f"and the bucket {prices.bucket_gb_month} per GB and month"
    return (
        f"still costs {rate.paused:.3f} USD an hour, {month:.0f} a month ({parts}), {bucket}; "
        f"{prices.describe()}; cdk destroy ends that"
    )
