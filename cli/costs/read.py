"""Read what a cluster currently costs per hour, and what it has cost since its deploy."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Final

from bootstrap.aws.group_sizes import ClusterSizes
from cli.aws.clients import Clients, aws_errors
from cli.aws.clusters import Cluster
from cli.aws.deployed_template import DeployedTemplate, read_template
from cli.aws.file_systems import metered_gb
from cli.aws.nodes import Instance, find_instances
from cli.aws.scaling import read_activities
from cli.costs.amounts import dollars, dollars_by_kind
from cli.costs.cost_so_far import CostSoFar, InstanceLifetime, cost_so_far, instance_lifetimes
from cli.costs.parts import billed_parts
from cli.errors import ClusterError
from cli.node_groups.groups import instance_ids, read_groups, sizes_by_node_type
from cli.output import printable
from stacks.prices.price_list import PriceList, price_list
from stacks.prices.rate import BilledParts, Rate, hourly_rate

FILE_SYSTEM: Final = "AWS::EFS::FileSystem"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """Cost of a cluster."""

    rate: Rate
    """Cost per hour with the nodes that its groups currently request."""
    so_far: CostSoFar
    prices: PriceList

    @property
    def not_counted(self) -> str:
        """Return a line that names what depends on use; S3 reports the size of a bucket only once a day."""
        bucket = f"the bucket ({self.prices.bucket_gb_month} USD per GB and month)"
        return f"not counted: {bucket}, logs and traffic"

    def lines(self) -> tuple[str, str, str]:
        """Return the cost per hour, the sum spent and what neither counts, for display."""
        total = "an unknown price" if self.rate.total is None else f"{self.rate.total:.2f} USD"
        parts = ", ".join(f"{kind} {amount}" for kind, amount in dollars_by_kind(self.so_far.by_kind).items())
        since = f"{self.so_far.since:%Y-%m-%d %H:%M} UTC"
        return (
            f"costs {total} an hour by {self.prices.describe()}",
            f"spent {dollars(self.so_far.total)} USD since {since}: {parts}",
            self.not_counted,
        )


def read_cost(clients: Clients, cluster: Cluster) -> Cost:
    """Return the cost of a cluster. Raises ClusterError."""
    prices, now = price_list(clients.region), datetime.now(timezone.utc)
    # If the template has no nodes, there is nothing to query.
    template = read_template(clients.cloudformation, cluster.stack_name)
    template.sizes(cluster.name)
    groups = read_groups(clients.autoscaling, cluster.name)
    parts = read_parts(clients, cluster, template, sizes_by_node_type(groups))
    since = datetime.fromisoformat(cluster.created.replace("Z", "+00:00"))
    names = [group.name for group in groups.values()]
    lifetimes = instance_lifetimes(read_activities(clients.autoscaling, names, since=since, max_items=None))
    instances = find_instances(clients.ec2, instance_ids(groups))
    types = {name: instance.instance_type for name, instance in instances.items() if instance.instance_type}
    lifetimes += _older(instances, lifetimes)
    so_far = cost_so_far(lifetimes, types=types, parts=parts, prices=prices, since=since, now=now)
    return Cost(rate=hourly_rate(parts, prices), so_far=so_far, prices=prices)


def read_parts(clients: Clients, cluster: Cluster, template: DeployedTemplate, sizes: ClusterSizes) -> BilledParts:
    """Return the parts of a cluster whose groups have these sizes, with the current size of its own file system."""
    parts = billed_parts(template, cluster.name, sizes)
    if not (cluster.file_system and [*template.properties(FILE_SYSTEM)]):
        return parts
    try:
        with aws_errors(clients.region):
            return replace(parts, shared_gb=metered_gb(clients, cluster.file_system))
    except ClusterError as error:
        print(f"dlcluster: the shared storage is not counted: {printable(str(error))}", file=sys.stderr)
        return parts


def _older(instances: Mapping[str, Instance], lifetimes: list[InstanceLifetime]) -> list[InstanceLifetime]:
    """Return the running nodes whose launch Auto Scaling no longer reports."""
    known = {lifetime.instance_id for lifetime in lifetimes}
    return [
        InstanceLifetime(instance_id=name, start=instance.launched, end=None)
        for name, instance in instances.items()
        if name not in known and instance.launched is not None
    ]
