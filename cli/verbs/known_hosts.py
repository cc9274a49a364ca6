"""``dlcluster known-hosts [HOST]``: print known hosts lines.

OpenSSH calls this at each login with the table's name and the cluster's networks: then it is one client and one call.
"""

import click

from bootstrap.cluster.record_fields import Networks, RecordError, parse_networks
from cli.aws.clients import connect
from cli.aws.clusters import TABLE, TABLE_RULE
from cli.aws.nodes import read_membership
from cli.errors import UsageError
from cli.shared_options import Selection
from cli.ssh.config import known_hosts_text
from cli.verb import verb


@verb("known-hosts", examples=("dlcluster known-hosts >> ~/.ssh/known_hosts", "dlcluster known-hosts worker2"))
@click.option("--table", metavar="NAME", help="The cluster's table, which saves looking it up.")
@click.option("--networks", metavar="CIDR,...", help="The cluster's networks, together with --table.")
@click.argument("host", required=False, help="A node's name, instance id or address (all nodes).")
def command(selection: Selection, *, table: str | None, networks: str | None, host: str | None) -> int:
    """Print verified host keys, as lines for known_hosts."""
    checked_table = None if table is None else _table(table)
    checked_networks = None if networks is None else _networks(networks)
    if checked_table is None or checked_networks is None:  # a block of an older version names the table alone
        from cli.cluster_context import find_selected_cluster

        membership = find_selected_cluster(selection).membership
    else:
        membership = read_membership(
            connect(selection.region).dynamodb,
            table=checked_table,
            networks=checked_networks,
            cluster_name=selection.cluster or None,
        )
    print(known_hosts_text(membership.members, host), end="")
    return 0


def _table(name: str) -> str:
    if not TABLE.fullmatch(name):
        raise UsageError(f"--table must be {TABLE_RULE}, got {name!r}")
    return name


def _networks(text: str) -> Networks:
    try:
        return parse_networks(text)
    except RecordError as error:
        raise UsageError(f"--{error}") from error
