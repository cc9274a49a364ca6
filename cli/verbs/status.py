"""``dlcluster status``: list the nodes, and say what is missing."""

from cli.aws import Clients, aws_errors
from cli.errors import ClusterError
from cli.nodes import find_machines, missing_count
from cli.options import Options
from cli.request import find
from cli.scaling import find_groups, read_activities
from cli.status import missing_text, status_text


def main(options: Options) -> int:
    request = find(options)
    membership = request.membership
    machines = find_machines(request.clients.ec2, [member.instance_id for member in membership.members])
    print(status_text(request.cluster.name, membership, machines), end="")
    missing = missing_count(membership, machines)
    if missing:
        newest = _newest_activity(request.clients, request.cluster.name)
        print(missing_text(missing, expected=membership.expected, newest=newest), end="")
    return 0


def _newest_activity(clients: Clients, cluster_name: str) -> str:
    """What Auto Scaling did last; a user who may not ask for it gets the table all the same."""
    try:
        with aws_errors():
            groups = find_groups(clients.autoscaling, cluster_name)
            return next(map(str, read_activities(clients.autoscaling, groups.names)), "")
    except ClusterError as error:
        return str(error)
