"""``dlcluster known-hosts [HOST]``: print known hosts lines.

OpenSSH calls this at each login, with the table's name: then it is one client and one call.
"""

import re
from typing import Final

from cli.aws import connect
from cli.errors import UsageError
from cli.nodes import read_membership
from cli.options import Options
from cli.request import find
from cli.ssh_config import known_hosts_text

_TABLE: Final = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_TABLE_RULE: Final = "the name of a DynamoDB table, 3 to 255 letters, digits and _ - ."


def main(options: Options) -> int:
    if options.table is None:
        membership = find(options).membership
    else:
        if not _TABLE.fullmatch(options.table):
            raise UsageError(f"--table must be {_TABLE_RULE}, got {options.table!r}")
        dynamodb = connect(options.region).dynamodb
        membership = read_membership(dynamodb, table=options.table, cluster_name=options.cluster or None)
    print(known_hosts_text(membership.members, options.host), end="")
    return 0
