"""Log in to the master of the selected cluster, once per verb."""

from collections.abc import Iterator
from contextlib import contextmanager

from cli.aws.nodes import master_address
from cli.cluster_context import ClusterContext, find_selected_cluster
from cli.shared_options import Selection
from cli.ssh.access import identity_path
from cli.ssh.remote import Connection, SshTarget, connect


@contextmanager
def master_of(selection: Selection) -> Iterator[tuple[ClusterContext, Connection]]:
    """Yield the selected cluster and a connection to its master. Raises ClusterError."""
    context = find_selected_cluster(selection)
    with connect(ssh_target(context)) as connection:
        yield context, connection


def ssh_target(context: ClusterContext) -> SshTarget:
    """Return the master's address, login and host key."""
    return SshTarget(
        address=master_address(context.clients.ec2, context.membership, cluster_name=context.cluster.name),
        user=context.cluster.login_user,
        host_key=context.membership.master.host_key,
        identity=identity_path(context.selection.identity),
    )
