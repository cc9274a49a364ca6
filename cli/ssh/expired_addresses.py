"""Remove expired addresses from the allow list, as a side task of ``ssh`` and ``status``.

Nothing in the account removes them, so the commands that people run most do (docs/decisions/083). The help of
``allow-ip`` promises it.
"""

import sys
from datetime import datetime, timezone

from cli.aws.allow_list import AllowedBlock, AllowList
from cli.aws.clients import Clients, aws_errors
from cli.aws.clusters import Cluster
from cli.errors import ClusterError
from cli.output import printable
from stacks.settings.parsing import format_utc


def remove_expired_addresses(clients: Clients, cluster: Cluster) -> None:
    """Remove expired addresses and name them on stderr, or explain why not; the caller continues in either case."""
    if cluster.is_private or cluster.allow_list is None:
        return
    try:
        with aws_errors(clients.region):
            expired = AllowList(clients.ec2, cluster.allow_list).remove_expired(datetime.now(timezone.utc))
    except ClusterError as error:
        print(f"dlcluster: cannot look for expired addresses: {printable(str(error))}", file=sys.stderr)
        return
    name_expired(expired)


def name_expired(expired: tuple[AllowedBlock, ...]) -> None:
    """Print on stderr which addresses were removed."""
    for entry in expired:
        end = f" at {format_utc(entry.until)}" if entry.until else ""
        print(f"dlcluster: removed {printable(entry.cidr)}, whose time ended{end}", file=sys.stderr)
