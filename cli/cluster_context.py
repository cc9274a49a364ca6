"""Look up the selected cluster and its members, which most verbs start with."""

from dataclasses import dataclass

from cli.aws.clients import Clients, aws_errors, connect
from cli.aws.clusters import Cluster, find_cluster
from cli.aws.nodes import Member, Membership, read_membership
from cli.aws.scaling import find_groups
from cli.errors import ClusterError, NoClusterError, NoMembersError
from cli.seen_clusters import SeenCluster, forget, remember
from cli.shared_options import Selection


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterContext:
    """The selected cluster, its members, and the clients that found them."""

    selection: Selection
    clients: Clients
    cluster: Cluster
    membership: Membership

    @property
    def master(self) -> Member:
        """Return the master. Raises ClusterError if there is none, with the reason if the cluster is paused."""
        try:
            return self.membership.master
        except ClusterError:
            if not self._is_paused():
                raise
            hint = "" if self.cluster.block else ": dlcluster resume brings its nodes back"
            raise ClusterError(f"the cluster is paused{hint}") from None

    def _is_paused(self) -> bool:
        try:
            with aws_errors(self.clients.region):
                groups = find_groups(self.clients.autoscaling, self.cluster.name)
        except ClusterError:
            return False  # without the right to list groups, nobody knows
        return groups.desired_nodes(default=1) == 0


def find_selected_cluster(selection: Selection) -> ClusterContext:
    """Return the selected cluster and its members. Raises ClusterError."""
    return look_up(selection, connect(selection.region))


def look_up(selection: Selection, clients: Clients) -> ClusterContext:
    """Return the selected cluster with existing clients, because creating them is slow. Raises ClusterError."""
    try:
        cluster = find_cluster(clients.cloudformation, name=selection.cluster, region=clients.region)
    except NoClusterError:
        forget(selection.cluster, clients.region)
        raise
    try:
        membership = read_membership(
            clients.dynamodb, table=cluster.table, networks=cluster.networks, cluster_name=cluster.name
        )
    except NoMembersError:
        if cluster.block is None:
            raise
        # Its first nodes start with the Capacity Block.
        membership = Membership(generation=0, desired_nodes=0, members=())
    nodes = tuple(sorted(member.node_index for member in membership.members))
    remember(SeenCluster(name=cluster.name, region=clients.region, nodes=nodes))
    return ClusterContext(selection=selection, clients=clients, cluster=cluster, membership=membership)
