"""``dlcluster known-hosts [HOST]``: print known hosts lines.

OpenSSH calls this at each login, with the table's name: then it is one client and one call.
"""

from cli.aws import connect
from cli.nodes import read_membership
from cli.options import Options
from cli.request import find
from cli.ssh_config import known_hosts_text


def main(options: Options) -> int:
    if options.table is None:
        membership = find(options).membership
    else:
        dynamodb = connect(options.region).dynamodb
        membership = read_membership(dynamodb, table=options.table, cluster_name=options.cluster or "")
    print(known_hosts_text(membership.members, options.host), end="")
    return 0
