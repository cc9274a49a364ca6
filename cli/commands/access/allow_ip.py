"""``dlcluster allow-ip [CIDR | --me]``: let more addresses reach the SSH port of the master, without a deploy."""

import sys
from datetime import datetime, timedelta, timezone

import click

from cli.aws.allow_list import AllowedBlock, AllowList, allow_list_id
from cli.aws.clients import create_clients
from cli.aws.own_address import URL, VARIABLE, own_address
from cli.cluster_context import resolve_cluster
from cli.command import cluster_command
from cli.errors import ClusterError, UsageError
from cli.output import json_option, print_json, print_table
from cli.shared_options import Selection
from cli.ssh.expired_addresses import name_expired
from stacks.settings.base import SettingsError, require
from stacks.settings.parsing import format_utc, parse_cidr, parse_duration
from stacks.settings.security import WIDEST_SSH_PREFIX

COLUMNS = ("CIDR", "UNTIL")


@cluster_command(
    "allow-ip",
    examples=(
        "dlcluster allow-ip",
        "dlcluster allow-ip --me --for 8h",
        "dlcluster allow-ip 203.0.113.0/24",
        "dlcluster allow-ip --remove 203.0.113.0/24",
    ),
)
@click.argument("cidr", required=False, help="IPv4 block like 203.0.113.9/32, at most as wide as /8.")
@click.option("--me", is_flag=True, help=f"This machine's public address, as {URL} sees it ({VARIABLE}).")
@click.option("--for", "time", metavar="TIME", help="Allow it for 90m, 8h or 2d (default: until it is removed).")
@click.option("--remove", is_flag=True, help="Take the address off the list.")
@json_option
def command(selection: Selection, *, cidr: str | None, me: bool, time: str | None, remove: bool, as_json: bool) -> int:
    """Let an address reach the master's SSH port now, without a deploy; without an address, list those allowed.

    The list has room for 20 addresses and belongs to the cluster: deploys leave it alone, cdk destroy deletes it. It
    adds to ssh_location and never changes that. Only dlcluster removes an address whose time has passed: allow-ip,
    status and ssh do so whenever they run. Open connections stay open.
    """
    more = _checked(cidr, me=me, time=time, remove=remove)
    clients = create_clients(selection.region)
    cluster = resolve_cluster(selection, clients)
    allowed = AllowList(clients.ec2, allow_list_id(cluster))
    block = f"{own_address()}/32" if me else cidr
    now = datetime.now(timezone.utc).replace(microsecond=0)
    expired = allowed.remove_expired(now)
    name_expired(expired)
    changed = False
    if block is not None and remove:
        changed = allowed.remove(block) or block in [entry.cidr for entry in expired]
        if not changed:
            raise ClusterError(f"{block} is not on the list of {cluster.name}, which dlcluster allow-ip shows")
    elif block is not None:
        changed = allowed.add(AllowedBlock(cidr=block, until=now + more if more else None))
    entries = allowed.entries()
    if as_json:
        addresses = [
            {"cidr": entry.cidr, "until": format_utc(entry.until) if entry.until else None} for entry in entries
        ]
        print_json(cluster=cluster.name, addresses=addresses, changed=changed)
    elif entries:
        print_table(COLUMNS, [(entry.cidr, format_utc(entry.until) if entry.until else "") for entry in entries])
    else:
        besides = "addresses in ssh_location are allowed too"
        print(f"dlcluster: no address on the list of {cluster.name}; {besides}", file=sys.stderr)
    return 0


def _checked(cidr: str | None, *, me: bool, time: str | None, remove: bool) -> timedelta | None:
    """Return how long the address is allowed. Raises UsageError if the words do not fit together."""
    if cidr is not None and me:
        raise UsageError("give a CIDR or --me, not both")
    if cidr is None and not me and (remove or time is not None):
        raise UsageError(f"{'--remove' if remove else '--for'} needs a CIDR or --me")
    if remove and time is not None:
        raise UsageError("--for cannot be combined with --remove")
    if cidr is not None:
        _check_block(cidr, remove=remove)
    if time is None:
        return None
    opening_time = parse_duration(time)
    if opening_time is None:
        raise UsageError(f"--for must be like 90m, 8h or 2d, got {time[:60]!r}")
    return opening_time


def _check_block(cidr: str, *, remove: bool) -> None:
    try:
        block = parse_cidr("CIDR", cidr)
        wide = f"at most as wide as /{WIDEST_SSH_PREFIX} (ssh_location takes wider ones)"
        require(remove or block.prefixlen >= WIDEST_SSH_PREFIX, "CIDR", cidr, wide)
    except SettingsError as error:
        raise UsageError(str(error)) from error
