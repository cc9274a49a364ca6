"""``dlcluster status``: list the nodes, and say how many are missing and why."""

from cli.aws.clients import Clients, aws_errors
from cli.aws.nodes import find_machines
from cli.aws.scaling import NO_GROUPS, ScalingGroups, find_groups, read_activities
from cli.cluster_context import find_selected_cluster
from cli.errors import ClusterError
from cli.output import json_option, print_json, print_table
from cli.reports.status import COLUMNS, Status, reasons
from cli.shared_options import Selection
from cli.verb import verb


@verb("status", examples=("dlcluster status", "dlcluster status --cluster vision --region eu-west-1 --json"))
@json_option
def command(selection: Selection, *, as_json: bool) -> int:
    """List the nodes of a cluster, and say how many are missing and why."""
    context = find_selected_cluster(selection)
    clients, membership = context.clients, context.membership
    groups, refusals = _groups(clients, context.cluster.name)
    status = Status(
        cluster_name=context.cluster.name,
        region=clients.region,
        membership=membership,
        machines=find_machines(clients.ec2, [member.instance_id for member in membership.members]),
        # The groups say at once what was asked for; the membership only when a master has noticed.
        desired_nodes=groups.desired_nodes(default=membership.desired_nodes),
    )
    told = [*refusals, *_reasons(clients, groups)] if status.missing else []
    if as_json:
        print_json(**status.document(told))
        return 0
    print(status.summary)
    print_table(COLUMNS, status.rows())
    if status.missing:
        print("\n".join(status.missing_lines(told)))
    return 0


def _groups(clients: Clients, cluster_name: str) -> tuple[ScalingGroups, list[str]]:
    """Return the groups, or none and the refusal if the user may not list them: the table does without."""
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
