"""The settings as ``cdk deploy`` reads them in a directory: its files, and ``-c name=value`` over them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from cli.errors import UsageError
from stacks.props import ClusterProps, SettingsError

APP_FILE: Final = "cdk.json"
LOOKED_UP_FILE: Final = "cdk.context.json"
"""What earlier synths looked up in the account, such as the machine image."""


def read_context(directory: Path, words: Sequence[str] = ()) -> dict[str, Any]:
    """The CDK's context. Its CLI takes a name from ``-c`` before cdk.json, and from there before the look-ups."""
    app = _read(directory / APP_FILE).get("context", {})
    if not isinstance(app, dict):
        raise UsageError(f"{directory / APP_FILE} must have an object as its context, got {app!r}")
    looked_up = _read(directory / LOOKED_UP_FILE) if (directory / LOOKED_UP_FILE).exists() else {}
    return {**looked_up, **app, **dict(map(_pair, words))}


def read_props(context: dict[str, Any]) -> ClusterProps:
    """The settings of the cluster, or one line that says which cannot be used."""
    try:
        return ClusterProps.from_context(context)
    except SettingsError as error:
        raise UsageError(str(error)) from error


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise UsageError(f"no {path.name} in {path.parent}: go where you run cdk deploy") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{path} must be a JSON object, got {found!r}")
    return found


def _pair(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not (name and equals):
        raise UsageError(f"-c must be name=value, got {word!r}")
    return name, value
