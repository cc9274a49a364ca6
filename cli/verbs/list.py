"""``dlcluster list``: list the clusters of a region."""

import sys
from collections.abc import Iterable, Iterator

from cli.aws.clients import Clients, aws_errors, connect
from cli.aws.clusters import Cluster, check_outputs, find_clusters
from cli.aws.scaling import find_groups
from cli.errors import ClusterError
from cli.output import json_option, print_json, print_table, printable
from cli.shared_options import Selection
from cli.verb import verb

COLUMNS = ("CLUSTER", "NODES", "STACK", "STATUS", "CREATED")


@verb("list", examples=("dlcluster list", "dlcluster list --region eu-west-1 --json"))
@json_option
def command(selection: Selection, *, as_json: bool) -> int:
    """List the clusters of a region, each with its desired number of nodes.

    A stack without outputs, because a deploy goes on or failed, is not listed, though its resources cost money:
    dlcluster why --cluster NAME.
    """
    clients = connect(selection.region)
    found = sorted(_checked(find_clusters(clients.cloudformation)), key=lambda cluster: cluster.name)
    chosen = [cluster for cluster in found if selection.cluster in (None, cluster.name)]
    nodes = [_desired_nodes(clients, cluster) for cluster in chosen]
    if as_json:
        print_json(
            region=clients.region,
            clusters=[
                {
                    "name": cluster.name,
                    "desired_nodes": count,
                    "stack": cluster.stack_name,
                    "status": cluster.stack_status,
                    "created": cluster.created,
                }
                for cluster, count in zip(chosen, nodes, strict=True)
            ],
        )
    elif chosen:
        print_table(
            COLUMNS,
            [
                (each.name, "" if count is None else str(count), each.stack_name, each.stack_status, each.created)
                for each, count in zip(chosen, nodes, strict=True)
            ],
        )
    else:
        print(f"dlcluster: no cluster in {clients.region}", file=sys.stderr)
    return 0


def _checked(clusters: Iterable[Cluster]) -> Iterator[Cluster]:
    """Yield the clusters with usable outputs; name the others on standard error."""
    for cluster in clusters:
        try:
            yield check_outputs(cluster)
        except ClusterError as error:
            print(f"dlcluster: not listed: {printable(str(error))}", file=sys.stderr)


def _desired_nodes(clients: Clients, cluster: Cluster) -> int | None:
    """Return None if the user may not list the groups."""
    try:
        with aws_errors(clients.region):
            groups = find_groups(clients.autoscaling, cluster.name)
    except ClusterError:
        return None
    return groups.desired if groups.names else None
