"""``dlcluster known-hosts [HOST]``: print known hosts lines.

OpenSSH calls this at each login, with the table's name and the cluster's networks: then it is one client and one call.
"""

from bootstrap.cluster.record_fields import Networks, RecordError, parse_networks
from cli.aws.clients import connect
from cli.aws.clusters import TABLE, TABLE_RULE
from cli.aws.nodes import read_membership
from cli.cluster_context import find
from cli.errors import UsageError
from cli.options import Options
from cli.ssh.config import known_hosts_text


def main(options: Options) -> int:
    table = None if options.table is None else _table(options.table)
    networks = None if options.networks is None else _networks(options.networks)
    if table is None or networks is None:  # a block of an older version names the table alone
        membership = find(options).membership
    else:
        dynamodb = connect(options.region).dynamodb
        membership = read_membership(dynamodb, table=table, networks=networks, cluster_name=options.cluster or None)
    print(known_hosts_text(membership.members, options.host), end="")
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
