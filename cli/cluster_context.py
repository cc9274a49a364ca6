"""Look up what most verbs begin with: the selected cluster and its members."""

from dataclasses import dataclass

from cli.aws.clients import Clients, connect
from cli.aws.clusters import Cluster, find_cluster
from cli.aws.nodes import Membership, read_membership
from cli.shared_options import Selection


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterContext:
    """Hold the selected cluster and the clients that found it."""

    selection: Selection
    clients: Clients
    cluster: Cluster
    membership: Membership


def find_selected_cluster(selection: Selection) -> ClusterContext:
    """Look the cluster up. Raises ClusterError."""
    clients = connect(selection.region)
    cluster = find_cluster(clients.cloudformation, name=selection.cluster, region=clients.region)
    membership = read_membership(
        clients.dynamodb, table=cluster.table, networks=cluster.networks, cluster_name=cluster.name
    )
    return ClusterContext(selection=selection, clients=clients, cluster=cluster, membership=membership)
