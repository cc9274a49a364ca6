"""Define `Settings`, the base of each concern's settings, and the error for a setting that cannot be used.

An error message is one short line: what is wrong, the values allowed, the value got.
"""

import reprlib
from typing import Final

_MAX_SHOWN: Final = 60


class SettingsError(Exception):
    """A setting cannot be used; the message is one line for the user."""


class Settings:
    """Base of the settings of one concern; see ``ClusterProps``, which combines them.

    ``check`` and ``warnings`` are cooperative: an override calls ``super()`` first.
    """

    def check(self) -> None:
        """Raise SettingsError for a value that AWS or the nodes would refuse, before anything is created."""

    def warnings(self) -> dict[str, str]:
        """Return the warnings to show before a deploy: sentences by ID."""
        return {}


def shown(value: object) -> str:
    """Return a value for messages: quoted, on one line, and never long."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = _MAX_SHOWN
    short.maxlevel = 2
    text = short.repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."


def require(holds: object, name: str, value: object, allowed: str) -> None:
    """Raise SettingsError unless the condition holds."""
    if not holds:
        got = "" if value is None else f", got {shown(value)}"
        raise SettingsError(f"{name} must be {allowed}{got}")
