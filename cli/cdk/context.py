"""Read the settings like ``cdk deploy``: from a directory's files, the user's own file, and ``-c name=value``."""

import json
import os.path
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from cli.errors import UsageError
from stacks.settings.base import SettingsError, shown
from stacks.settings.parsing import check_settings_are_in_context
from stacks.settings.props import ClusterProps

APP_FILE: Final = "cdk.json"
LOOKED_UP_FILE: Final = "cdk.context.json"
"""File with values that earlier synths looked up in the account, such as the machine image."""
USER_FILE: Final = "~/.cdk.json"
"""File with the user's settings for every app."""

OWN_SETTINGS: Final = ("cluster", "cluster_name")
"""Keys of a context that has a cluster: the cdk.json of another app has neither."""

cdk_option: Final = click.option(
    *("-c", "--context", "cdk_options"),
    metavar="NAME=VALUE",
    multiple=True,
    help="A setting, as in cdk deploy -c.",
)


def read_context(directory: Path, cdk_options: Sequence[str] = ()) -> dict[str, Any]:
    """Return the context like the CDK's command line: a name's value comes from ``-c``, cdk.json, the look-ups or the
    user's file, in this order. If several of them give objects, these are merged (aws-cdk, user-configuration).
    """
    user_file = os.path.expanduser(USER_FILE)  # noqa: PTH111  (Path.expanduser fails where no home is known)
    user = _context(Path(user_file), needed=False)
    looked_up = _read(directory / LOOKED_UP_FILE, needed=False)
    app = _context(directory / APP_FILE, needed=True)
    try:
        check_settings_are_in_context(directory / APP_FILE)
    except SettingsError as error:
        raise UsageError(str(error)) from error
    return {**_merged(_merged(user, looked_up), app), **dict(map(_pair, cdk_options))}


def read_props(context: dict[str, Any]) -> ClusterProps:
    """Return the cluster's settings. Raises UsageError if one is invalid."""
    try:
        return ClusterProps.from_context(context)
    except SettingsError as error:
        raise UsageError(str(error)) from error


def own_props(directory: Path) -> ClusterProps | None:
    """Return the settings if the directory's cdk.json has some and they can be used, else None."""
    try:
        context = read_context(directory)
        return read_props(context) if any(name in context for name in OWN_SETTINGS) else None
    except (UsageError, OSError):
        return None


def _context(path: Path, *, needed: bool) -> dict[str, Any]:
    context = _read(path, needed=needed).get("context")
    if context is not None and not isinstance(context, dict):
        raise UsageError(f"{path} must have an object as its context, got {shown(context)}")
    return context or {}


def _read(path: Path, *, needed: bool) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError as error:
        if not needed:
            return {}
        raise UsageError(
            f"no {path.name} in {path.parent}: change to the directory where you run cdk deploy"
        ) from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as JSON: {error}") from error
    except RecursionError as error:
        raise UsageError(f"{path} cannot be read as JSON: it is nested too deeply") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path} must be a JSON object, got {shown(content)}")
    return content


def _merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Merge two objects name by name, including nested objects."""
    both = {name: _merged(under[name], over[name]) for name in under if _are_objects(under[name], over.get(name))}
    return {**under, **over, **both}


def _are_objects(*values: Any) -> bool:
    return all(isinstance(value, dict) for value in values)


def _pair(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not (name and equals):
        raise UsageError(f"-c must be name=value, got {word!r}")
    return name, value
