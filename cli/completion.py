"""Complete words in a shell: clusters and nodes as dlcluster last saw them, or as cdk.json here has them, and files.

No completion calls AWS: a shell waits for it.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from bootstrap.contract import FIRST_WORKER_INDEX, MASTER, MASTER_INDEX, worker_host

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from stacks.settings.props import ClusterProps

NODE_SEPARATOR: Final = ":"
"""Ends the node's name in NODE:PATH."""


def complete_cluster(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the clusters' names that begin so."""
    # Imported late: every start imports this module.
    from cli.seen_clusters import read_seen

    props = _props()
    names = {*([props.cluster_name] if props else []), *(cluster.name for cluster in read_seen())}
    return sorted(name for name in names if name.startswith(incomplete))


def complete_node(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the nodes' names that begin so."""
    return [name for name in _nodes(ctx) if name.startswith(incomplete)]


def complete_remote(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the beginnings of NODE:PATH; the paths themselves are known only on the nodes."""
    names = (f"{name}{NODE_SEPARATOR}" for name in _nodes(ctx))
    return [name for name in names if name.startswith(incomplete)]


def complete_host(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the nodes' host names that begin so."""
    return [host for host in map(worker_host, _indexes(ctx)) if host.startswith(incomplete)]


def complete_file(_: click.Context, __: click.Parameter, incomplete: str) -> "list[CompletionItem[str]]":
    """Have the shell complete a file's name."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def _nodes(ctx: click.Context) -> list[str]:
    """Return the nodes' names."""
    return [
        MASTER if index == MASTER_INDEX else worker_host(index).removeprefix("deeplearning-") for index in _indexes(ctx)
    ]


def _indexes(ctx: click.Context) -> list[int]:
    """Return the nodes of the cluster that the line or cdk.json names, else of the latest; at least the master."""
    # Imported late: every start imports this module.
    from cli.seen_clusters import read_seen

    chosen, props = ctx.find_root().ensure_object(dict), _props()
    name, region = chosen.get("cluster") or (props.cluster_name if props else None), chosen.get("region")
    for cluster in reversed(read_seen()):
        if name in (None, cluster.name) and region in (None, cluster.region):
            return [MASTER_INDEX, *(index for index in cluster.nodes if index >= FIRST_WORKER_INDEX)]
    declared = props.worker_count if props and props.cluster_name == name else 0
    return list(range(1, declared + 2))


def _props() -> "ClusterProps | None":
    # Imported late: every start imports this module.
    from cli.cdk.context import own_props

    return own_props(Path.cwd())
