"""Complete words in a shell: names of the cluster and its nodes, from the cdk.json of the directory, and files.

No completion calls AWS: a shell waits for it.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from bootstrap.contract import MASTER, worker_host
from cli.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from stacks.settings.props import ClusterProps

OWN_SETTINGS: Final = ("cluster", "cluster_name")
"""Keys of a context that has a cluster: the cdk.json of another app has neither."""


def complete_cluster(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the cluster's name if it begins so."""
    props = _props()
    return [props.cluster_name] if props and props.cluster_name.startswith(incomplete) else []


def complete_node(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the nodes' names that begin so."""
    workers = [host.removeprefix("deeplearning-") for host in _hosts()[1:]]
    return [name for name in (MASTER, *workers) if name.startswith(incomplete)]


def complete_host(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the nodes' host names that begin so."""
    return [host for host in _hosts() if host.startswith(incomplete)]


def complete_file(_: click.Context, __: click.Parameter, incomplete: str) -> "list[CompletionItem[str]]":
    """Have the shell complete a file's name."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def _hosts() -> list[str]:
    """Return the nodes' host names, the master's alone if the number of workers is not known."""
    props = _props()
    return [worker_host(index) for index in range(1, (props.worker_count if props else 0) + 2)]


def _props() -> "ClusterProps | None":
    """Return the settings in this directory; None if there are none that can be used."""
    # Imported late: every start imports this module.
    from cli.cdk_context import read_context, read_props

    try:
        context = read_context(Path.cwd())
        return read_props(context) if any(name in context for name in OWN_SETTINGS) else None
    except (UsageError, OSError):
        return None
