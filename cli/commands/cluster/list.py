"""``dlcluster list``: list the clusters of a region."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cli.aws.clients import Clients, aws_errors, create_clients
from cli.aws.clusters import Cluster, UnfinishedStack, check_outputs, find_stacks
from cli.aws.scaling import find_groups
from cli.command import cluster_command
from cli.errors import ClusterError, NoClusterError
from cli.output import is_terminal, json_option, print_json, print_table, printable
from cli.shared_options import Selection
from cli.stack_states import explain

COLUMNS = ("CLUSTER", "NODES", "STACK", "STATUS", "CREATED")
KEYS = ("name", "desired_nodes", "stack", "status", "created")
"""Keys of the JSON object whose values are the table's cells."""


@cluster_command("list", examples=("dlcluster list", "dlcluster list --region eu-west-1 --json"))
@json_option
def command(selection: Selection, *, as_json: bool) -> int:
    """List the clusters of a region, each with its desired number of nodes.

    A stack that is being created, or whose first deploy failed, has no number. Below the table, each failure is
    explained, with the next step. With --cluster, the exit code is 3 if the region has no such cluster.
    """
    clients = create_clients(selection.region)
    stacks = sorted(_checked(find_stacks(clients.cloudformation)), key=lambda stack: stack.name)
    rows = [_document(clients, stack) for stack in stacks if selection.cluster in (None, stack.name)]
    if as_json:
        print_json(region=clients.region, clusters=rows)
    elif rows:
        print_table(COLUMNS, [_cells(row) for row in rows])
        for row in rows:
            if row["explanation"] is not None:
                print(printable(f"{row['name']} is {row['status']}: {row['explanation']}"))
    elif selection.cluster is None:
        print(f"dlcluster: no cluster in {clients.region}; cdk deploy creates one", file=sys.stderr)
    if not rows and selection.cluster is not None:
        raise NoClusterError(f"no cluster {printable(selection.cluster)!r} in {clients.region}")
    return 0


def _cells(row: Mapping[str, Any]) -> list[str]:
    """Return a row of the table; on a terminal the time has no seconds, for which 80 columns have no room."""
    cells = {key: "" if row[key] is None else str(row[key]) for key in KEYS}
    if is_terminal():
        cells["created"] = cells["created"][: len("2026-01-01T00:00")].replace("T", " ")
    return [*cells.values()]


def _checked(stacks: Iterable[Cluster | UnfinishedStack]) -> Iterator[Cluster | UnfinishedStack]:
    """Yield the stacks with usable outputs or with none; name the others on standard error."""
    for stack in stacks:
        try:
            yield check_outputs(stack) if isinstance(stack, Cluster) else stack
        except ClusterError as error:
            print(f"dlcluster: not listed: {printable(str(error))}", file=sys.stderr)


def _document(clients: Clients, found: Cluster | UnfinishedStack) -> dict[str, Any]:
    """Return a cluster as a JSON object."""
    if isinstance(found, UnfinishedStack):
        stack, status, desired = found.name, found.status, None
    else:
        stack, status, desired = found.stack_name, found.stack_status, _desired_nodes(clients, found)
    return {
        "name": found.name,
        "desired_nodes": desired,
        "stack": stack,
        "status": status,
        "created": found.created,
        "explanation": explain(status, name=found.name, region=clients.region),
    }


def _desired_nodes(clients: Clients, cluster: Cluster) -> int | None:
    """Return the desired number of nodes; None if the user may not list the groups."""
    try:
        with aws_errors(clients.region):
            groups = find_groups(clients.autoscaling, cluster.name)
    except ClusterError:
        return None
    return groups.desired if groups.names else None
