"""Connect to the master of the selected cluster, once per command."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager

from cli.aws.nodes import check_instance, master_address
from cli.cluster_context import ClusterContext, find_selected_cluster
from cli.shared_options import Selection
from cli.ssh.access import identity_path
from cli.ssh.master_connection import MasterConnection, SshTarget, open_connection
from cli.ssh.session_manager import start_session


@contextmanager
def connect_to_master(selection: Selection) -> Iterator[tuple[ClusterContext, MasterConnection]]:
    """Yield the selected cluster and a connection to its master. Raises ClusterError."""
    selected = find_selected_cluster(selection)
    with open_connection(ssh_target(selected)) as connection:
        yield selected, connection


def ssh_target(selected: ClusterContext) -> SshTarget:
    """Return the master's address, login and host key; in a private cluster, also how to start a session."""
    clients, cluster = selected.clients, selected.cluster
    master, start = selected.master, None
    with selected.explain_if_paused():
        if cluster.is_private:
            check_instance(clients.ec2, master, cluster_name=cluster.name)
            address, start = master.host_names[0], functools.partial(start_session, clients, master.instance_id)
        else:
            address = master_address(clients.ec2, selected.membership, cluster_name=cluster.name)
    return SshTarget(
        address=address,
        user=cluster.login_user,
        host_key=master.host_key,
        identity=identity_path(selected.selection.identity),
        start_session=start,
    )
