"""``dlcluster status``: list the nodes, and tell how many are missing and why."""

from cli.aws.clients import Clients, aws_errors
from cli.aws.nodes import find_machines, missing_count
from cli.aws.scaling import NO_GROUPS, ScalingGroups, find_groups, read_activities
from cli.cluster_context import find
from cli.errors import ClusterError
from cli.reports.status import missing_text, reasons, status_text
from cli.shared_options import Selection
from cli.verb import verb


@verb("status", examples=("dlcluster status", "dlcluster status --cluster vision --region eu-west-1"))
def command(selection: Selection) -> int:
    """List the nodes of a cluster, and tell how many are missing and why."""
    context = find(selection)
    clients, membership = context.clients, context.membership
    machines = find_machines(clients.ec2, [member.instance_id for member in membership.members])
    groups, refusals = _groups(clients, context.cluster.name)
    # The groups say at once what was asked for; the membership only when a master has noticed.
    desired_nodes = groups.desired_nodes(otherwise=membership.desired_nodes)
    print(status_text(context.cluster.name, membership, machines, desired_nodes=desired_nodes), end="")
    if missing_count(membership, machines, desired_nodes=desired_nodes):
        told = [*refusals, *_reasons(clients, groups)]
        print(missing_text(membership, machines, desired_nodes=desired_nodes, told=told), end="")
    return 0


def _groups(clients: Clients, cluster_name: str) -> tuple[ScalingGroups, list[str]]:
    """A user who may not ask for the groups gets the table all the same."""
    try:
        with aws_errors(clients.region):
            return find_groups(clients.autoscaling, cluster_name), []
    except ClusterError as error:
        return NO_GROUPS, [str(error)]


def _reasons(clients: Clients, groups: ScalingGroups) -> list[str]:
    try:
        with aws_errors(clients.region):
            return reasons(read_activities(clients.autoscaling, groups.names, since=groups.since))
    except ClusterError as error:
        return [str(error)]
