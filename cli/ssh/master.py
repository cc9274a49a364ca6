"""Connect to the master of the selected cluster, once per command."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager

from cli.aws.nodes import check_instance, master_address
from cli.cluster_context import ClusterContext, look_up_context
from cli.shared_options import Selection
from cli.ssh.access import identity_path
from cli.ssh.master_connection import MasterConnection, SshTarget, open_connection
from cli.ssh.session_manager import start_session


@contextmanager
def connect_to_master(selection: Selection) -> Iterator[tuple[ClusterContext, MasterConnection]]:
    """Yield the selected cluster and a connection to its master. Raises ClusterError."""
    context = look_up_context(selection)
    with open_connection(ssh_target(context)) as connection:
        yield context, connection


def ssh_target(context: ClusterContext) -> SshTarget:
    """Return the master's address, login and host key; in a private cluster, also how to start a session."""
    clients, cluster = context.clients, context.cluster
    master, start = context.master, None
    with context.explain_if_paused():
        if cluster.is_private:
            check_instance(clients.ec2, master, cluster_name=cluster.name)
            address, start = master.host_names[0], functools.partial(start_session, clients, master.instance_id)
        else:
            address = master_address(clients.ec2, context.membership, cluster_name=cluster.name)
    return SshTarget(
        address=address,
        user=cluster.login_user,
        host_key=master.host_key,
        identity=identity_path(context.selection.identity),
        start_session=start,
    )
