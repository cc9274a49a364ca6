"""``dlcluster why``: explain why a deploy failed or a node is missing."""

from pathlib import Path

from cli.aws.clients import Clients, create_clients
from cli.aws.clusters import Cluster, check_outputs, find_cluster, find_clusters
from cli.aws.diagnosis import diagnose
from cli.aws.stack_history import StackState, find_newest_stack
from cli.cdk.context import APP_FILE, read_context, read_props
from cli.command import cluster_command
from cli.errors import NoClusterError
from cli.output import json_option, print_json
from cli.reports.why import why_document, why_text
from cli.shared_options import Selection


@cluster_command("why", examples=("dlcluster why", "dlcluster why --cluster vision"))
@json_option
def command(selection: Selection, *, as_json: bool) -> int:
    """Explain why a deploy failed or a node is missing.

    Without --cluster it looks at the cluster of ./cdk.json, or else at the only one. It also finds stacks that were
    rolled back or destroyed in the last 90 days. Exit code 1 means that AWS did not answer every question.
    """
    clients = create_clients(selection.region)
    stack, cluster = _find(clients, selection.cluster or _name_here(Path.cwd()))
    diagnosis = diagnose(clients, stack, cluster)
    if as_json:
        print_json(**why_document(diagnosis))
    else:
        print(why_text(diagnosis), end="")
    return 1 if diagnosis.unknown else 0


def _name_here(directory: Path) -> str | None:
    return read_props(read_context(directory)).cluster_name if (directory / APP_FILE).exists() else None


def _find(clients: Clients, name: str | None) -> tuple[StackState, Cluster | None]:
    """Return the stack, and the cluster if the stack became one."""
    if name is None:
        name = find_cluster(clients.cloudformation, name=None, region=clients.region).name
    cluster = {cluster.name: cluster for cluster in find_clusters(clients.cloudformation)}.get(name)
    stack_name = cluster.stack_name if cluster else name
    stack = find_newest_stack(clients.cloudformation, stack_name)
    if stack is None:
        raise NoClusterError(f"no stack {stack_name} in {clients.region}, and none was deleted in the last 90 days")
    return stack, check_outputs(cluster) if cluster else None
