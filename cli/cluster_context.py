"""Look up the selected cluster and its members, which most commands start with."""

from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from botocore.exceptions import ClientError

from cli.aws.clients import Clients, create_clients, refusal
from cli.aws.clusters import Cluster, find_cluster
from cli.aws.nodes import ClusterMembership, ClusterNode, read_membership
from cli.errors import ClusterError, NoClusterError, NoMembersError, SeveralClustersError
from cli.node_groups.paused_error import replace_error_if_paused
from cli.seen_clusters import SeenCluster, forget, remember
from cli.shared_options import Selection, with_cluster_option

ACCESS_DENIED: Final = "AccessDenied"
"""CloudFormation's code for a call that the caller's policies do not allow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterContext:
    """The selected cluster, its members, and the clients that found them."""

    selection: Selection
    clients: Clients
    cluster: Cluster
    membership: ClusterMembership

    @property
    def master(self) -> ClusterNode:
        """Return the master. Raises ClusterError if there is none, with the reason if the cluster is paused."""
        with self.explain_if_paused():
            return self.membership.master

    def explain_if_paused(self) -> AbstractContextManager[None]:
        """Return a context manager that replaces an error about a missing node with "the cluster is paused", if so."""
        return replace_error_if_paused(self.clients, self.cluster.name)


def resolve_cluster(selection: Selection, clients: Clients) -> Cluster:
    """Return the cluster of the command line, or the only one, or among several that of ./cdk.json.

    Raises ClusterError.
    """
    try:
        return find_cluster(clients.cloudformation, name=selection.cluster, region=clients.region)
    except ClientError as error:
        # A user's policy allows reading the stack of one cluster, and no list of stacks.
        if selection.cluster is None and error.response["Error"]["Code"] == ACCESS_DENIED:
            raise ClusterError(f"{refusal(error)}; name the cluster: {with_cluster_option()}") from error
        raise
    except SeveralClustersError:
        # Imported late: only this case needs the settings.
        from cli.cdk.context import own_props

        props = own_props(Path.cwd())
        with suppress(NoClusterError):
            if props is not None:
                return find_cluster(clients.cloudformation, name=props.cluster_name, region=clients.region)
        raise


def look_up_context(selection: Selection, clients: Clients | None = None) -> ClusterContext:
    """Return the selected cluster and its members; reuse `clients`, which are slow to create. Raises ClusterError."""
    clients = clients or create_clients(selection.region)
    try:
        cluster = resolve_cluster(selection, clients)
    except NoClusterError:
        forget(selection.cluster, clients.region)
        raise
    try:
        membership = read_membership(
            clients.dynamodb, table=cluster.table, networks=cluster.networks, cluster_name=cluster.name
        )
    except NoMembersError:
        if cluster.capacity_block is None:
            raise
        # Its first nodes start with the Capacity Block.
        membership = ClusterMembership(generation=0, desired_nodes=0, members=())
    nodes = tuple(sorted(member.node_index for member in membership.members))
    remember(SeenCluster(name=cluster.name, region=clients.region, nodes=nodes))
    return ClusterContext(selection=selection, clients=clients, cluster=cluster, membership=membership)
