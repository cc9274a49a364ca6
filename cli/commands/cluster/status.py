"""``dlcluster status``: list the nodes and the reasons for missing ones; repeat it with ``--watch``.

Without ``--watch`` it also changes something: it removes expired addresses from the allow list.
"""

import sys
from datetime import datetime, timezone
from typing import Final

import click

from cli.aws.clients import aws_errors
from cli.cluster_context import ClusterContext, look_up_context
from cli.command import cluster_command
from cli.costs.read import Cost, read_cost
from cli.errors import ClusterError, UsageError
from cli.output import json_option, print_json, print_table, printable
from cli.reports.status import COLUMNS
from cli.reports.status_reader import read_status
from cli.shared_options import Selection
from cli.ssh.expired_addresses import remove_expired_addresses

INTERVAL_S: Final = 5
"""Default number of seconds between updates."""
EXAMPLES: Final = (
    "dlcluster status",
    "dlcluster status --cluster vision --region eu-west-1 --json",
    "dlcluster status --watch --interval 10",
)


@cluster_command("status", examples=EXAMPLES)
@json_option
@click.option("--watch", "watches", is_flag=True, help="Refresh until Ctrl-C; needs the key to log in.")
@click.option(
    "--interval",
    metavar="SECONDS",
    type=click.IntRange(1, 3600),
    help=f"Seconds between refreshes (default: {INTERVAL_S}).",
)
def command(selection: Selection, *, as_json: bool, watches: bool, interval: int | None) -> int:
    """List the nodes of a cluster, the reasons for missing ones, and the cost.

    Also removes expired addresses from the allow list.

    --watch also asks the nodes, through the master: whether agent and sshd are alive, how busy the GPUs are, which jobs
    run. A terminal shows one table that is updated; elsewhere each update is a block of lines, with --json one line.
    """
    if watches:
        from cli.watch.loop import watch

        watch(selection, interval_s=interval or INTERVAL_S, as_json=as_json)  # never returns
    if interval is not None:
        raise UsageError("--interval requires --watch")
    context = look_up_context(selection)
    # The only change that this command makes: AWS removes no address, so the next status, ssh or allow-ip does.
    remove_expired_addresses(context.clients, context.cluster)
    status, reasons = read_status(context)
    cost = _cost(context)
    now = datetime.now(timezone.utc)
    if as_json:
        print_json(
            **status.to_dict(reasons, now),
            usd_per_hour=cost.rate.total if cost else None,
            usd_spent=cost.so_far.total if cost else None,
        )
        return 0
    print(status.summary)
    print_table(COLUMNS, status.rows())
    for line in status.lines(now, reasons):
        print(line)
    if cost:
        print("\n".join(cost.lines()))
    return 0


def _cost(context: ClusterContext) -> Cost | None:
    """Return the cost; if there is none, print the reason on stderr."""
    try:
        with aws_errors(context.clients.region):
            return read_cost(context.clients, context.cluster)
    except ClusterError as error:
        print(f"dlcluster: cannot determine the cost: {printable(str(error))}", file=sys.stderr)
        return None
