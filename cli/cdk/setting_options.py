"""Answer a cluster's setting that was typed as an option, such as ``--worker-count 2``, with the way to set it."""

import dataclasses
import re
import shlex
from collections.abc import Sequence

from stacks.settings.parsing import NAMES_IN_OTHER_TOOLS
from stacks.settings.props import ClusterProps


def find_setting(option: str, args: Sequence[str], *, by_other_names: bool) -> tuple[str, str] | None:
    """Return the setting that an unknown option means and its ``name=value``; None if it means none.

    With ``by_other_names``, names of other tools count too, such as ``--spot``.
    """
    name = option.lstrip("-").replace("-", "_")
    defaults = {field.name: field.default for field in dataclasses.fields(ClusterProps)}
    if name not in defaults and by_other_names:
        meant = re.match(r"\w+(=\w+)?", NAMES_IN_OTHER_TOOLS.get(name, ""))
        name = meant[0] if meant else name
    setting, has_value, _ = name.partition("=")
    if setting not in defaults:
        return None
    value = _value(option, args) or ("true" if defaults[setting] is False else "...")
    return setting, name if has_value else shlex.quote(f"{setting}={value}")


def _value(option: str, args: Sequence[str]) -> str:
    """Return the option's value on the command line; empty if it has none."""
    for word, following in zip(args, (*args[1:], ""), strict=True):
        name, equals, value = word.partition("=")
        if name == option:
            return value if equals or following.startswith("-") else following
    return ""
