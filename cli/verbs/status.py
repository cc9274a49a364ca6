"""``dlcluster status``: list the nodes, and say how many are missing and why."""

from cli.aws.clients import Clients, aws_errors
from cli.aws.nodes import find_machines, missing_count
from cli.aws.scaling import NO_GROUPS, Groups, find_groups, read_activities
from cli.errors import ClusterError
from cli.options import Options
from cli.request import find
from cli.status import missing_text, reasons, status_text


def main(options: Options) -> int:
    request = find(options)
    clients, membership = request.clients, request.membership
    machines = find_machines(clients.ec2, [member.instance_id for member in membership.members])
    groups, refusals = _groups(clients, request.cluster.name)
    # The groups say at once what was asked for; the membership only when a master has noticed.
    asked = groups.asked(otherwise=membership.desired_nodes)
    print(status_text(request.cluster.name, membership, machines, asked=asked), end="")
    if missing_count(membership, machines, asked=asked):
        told = [*refusals, *_reasons(clients, groups)]
        print(missing_text(membership, machines, asked=asked, told=told), end="")
    return 0


def _groups(clients: Clients, cluster_name: str) -> tuple[Groups, list[str]]:
    """A user who may not ask for the groups gets the table all the same."""
    try:
        with aws_errors(clients.region):
            return find_groups(clients.autoscaling, cluster_name), []
    except ClusterError as error:
        return NO_GROUPS, [str(error)]


def _reasons(clients: Clients, groups: Groups) -> list[str]:
    try:
        with aws_errors(clients.region):
            return reasons(read_activities(clients.autoscaling, groups.names, since=groups.since))
    except ClusterError as error:
        return [str(error)]
