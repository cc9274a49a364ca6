"""``dlcluster known-hosts [HOST]``: print known hosts lines.

OpenSSH calls this at each login with the table's name and the cluster's networks, which then takes one client and one
call.
"""

import click

from cli.command import cluster_command
from cli.shared_options import Selection
from cli.ssh.config import known_hosts_text
from cli.ssh.table_options import read_named_membership, table_options


@cluster_command(
    "known-hosts", examples=("dlcluster known-hosts >> ~/.ssh/known_hosts", "dlcluster known-hosts worker2")
)
@table_options
@click.argument("host", required=False, help="A node's name, instance id or address (default: all nodes).")
def command(selection: Selection, *, table: str | None, networks: str | None, host: str | None) -> int:
    """Print verified host keys, as lines for known_hosts."""
    _, membership = read_named_membership(selection, cluster=selection.cluster, table=table, networks=networks)
    print(known_hosts_text(membership.members, host), end="")
    return 0
