"""``dlcluster ssm-proxy CLUSTER NODE``: carry ssh to a node of a private cluster, in place of this process.

OpenSSH calls this at each login (ProxyCommand), with the table's name and the cluster's networks, like known-hosts.
"""

import os

import click

from bootstrap.contract import MASTER
from cli.aws.nodes import check_instance, choose_node
from cli.command import cluster_command
from cli.completion import complete_cluster, complete_node
from cli.errors import ClusterError
from cli.node_groups.paused_error import replace_error_if_paused
from cli.shared_options import Selection
from cli.ssh.session_manager import start_session
from cli.ssh.table_options import read_named_membership, table_options


@cluster_command(
    "ssm-proxy", examples=("ssh -o ProxyCommand='dlcluster ssm-proxy deeplearning master' ubuntu@deeplearning-master",)
)
@table_options
@click.argument("name", metavar="CLUSTER", shell_complete=complete_cluster, help="The cluster's name.")
@click.argument("node", shell_complete=complete_node, help="master, worker2 or 2.")
def command(selection: Selection, *, table: str | None, networks: str | None, name: str, node: str) -> int:
    """Connect ssh to a node through Session Manager; the block that ssh-config prints calls this."""
    clients, membership = read_named_membership(selection, cluster=name, table=table, networks=networks)
    with replace_error_if_paused(clients, name):
        if node in (MASTER, f"{name}-{MASTER}"):
            member = membership.master  # not a master that is about to end
        else:
            member = choose_node(node, membership.members, cluster_name=name)
        check_instance(clients.ec2, member, cluster_name=name)
    call = start_session(clients, member.instance_id)
    try:
        os.execve(call.command[0], call.command, dict(call.environment))
    except OSError as error:
        raise ClusterError(f"cannot run {call.command[0]}: {error.strerror}") from error
