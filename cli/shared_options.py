"""Define the options that every command accepts, before or after it: which cluster, where, with which key."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click

from cli.completion import complete_cluster, complete_file

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """The cluster to work on, and the key to log in with."""

    cluster: str | None = None
    """Cluster's name; None means the only cluster of the account and region, or among several that of ./cdk.json."""
    region: str | None = None
    """Region; None means that of the environment or the profile."""
    identity: str | None = None
    """Private key file; None means the SSH agent and the usual files."""


OPTIONS: Final = (
    (("--cluster",), "NAME", "Cluster name (the only one, or that of ./cdk.json).", complete_cluster),
    (("--region",), "REGION", "AWS region (AWS_REGION, or the profile's).", None),
    (("-i", "--identity"), "FILE", "Private key to log in with.", complete_file),
)


def cluster_options(function: Function) -> Function:
    """Add the shared options; `selection` collects their values."""
    for names, metavar, text, complete in reversed(OPTIONS):
        option = click.option(
            *names, metavar=metavar, help=text, expose_value=False, callback=_remember, shell_complete=complete
        )
        function = option(function)
    return function


def selection() -> Selection:
    """Return the selection of the running command line; an option after the command overrides one before it."""
    return Selection(**click.get_current_context().find_root().ensure_object(dict))


def invocation() -> str:
    """Return how to call dlcluster again for the same cluster, as the beginning of a command in a hint."""
    context = click.get_current_context(silent=True)
    given = {} if context is None else context.find_root().ensure_object(dict)
    args = [word for name in ("cluster", "region") if name in given for word in (f"--{name}", given[name])]
    return shlex.join(["dlcluster", *args])


def with_cluster_option() -> str:
    """Return the typed command, without its arguments, with a placeholder for the cluster's name."""
    return f"{invocation()} --cluster NAME {click.get_current_context().info_name}"


def _remember(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.find_root().ensure_object(dict)[parameter.name] = value
