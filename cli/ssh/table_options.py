"""Read a cluster's membership for OpenSSH from a given table and networks, which saves a call per login."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import click

from bootstrap.cluster.record_validation import Networks, RecordError, parse_networks
from cli.aws.clients import Clients, create_clients
from cli.aws.clusters import TABLE, TABLE_RULE
from cli.aws.nodes import ClusterMembership, read_membership
from cli.errors import UsageError
from cli.shared_options import Selection

Function = TypeVar("Function", bound=Callable[..., Any])


def table_options(function: Function) -> Function:
    """Add the options with which OpenSSH calls dlcluster."""
    named = click.option("--table", metavar="NAME", help="The cluster's table, which saves looking it up.")
    return named(
        click.option("--networks", metavar="CIDR,...", help="The cluster's networks, together with --table.")(function)
    )


def read_named_membership(
    selection: Selection, *, cluster: str | None, table: str | None, networks: str | None
) -> tuple[Clients, ClusterMembership]:
    """Return clients and the membership, from the given table or by looking up the cluster. Raises ClusterError."""
    checked_table = None if table is None else _table(table)
    checked_networks = None if networks is None else _networks(networks)
    if checked_table is None or checked_networks is None:  # a block of an older version names only the table
        from cli.cluster_context import look_up_context

        context = look_up_context(replace(selection, cluster=cluster))
        return context.clients, context.membership
    clients = create_clients(selection.region)
    membership = read_membership(
        clients.dynamodb, table=checked_table, networks=checked_networks, cluster_name=cluster or None
    )
    return clients, membership


def _table(name: str) -> str:
    if not TABLE.fullmatch(name):
        raise UsageError(f"--table must be {TABLE_RULE}, got {name!r}")
    return name


def _networks(text: str) -> Networks:
    try:
        return parse_networks(text)
    except RecordError as error:
        raise UsageError(f"--{error}") from error
