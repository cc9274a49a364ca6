"""Parse and format the values of settings, as cdk.json, ``-c`` and the command line of dlcluster give them."""

import dataclasses
import ipaddress
import re
from datetime import datetime, timedelta, timezone
from typing import Any, Final

from stacks.settings.base import SettingsError, require, shown

PARSER: Final = "parser"
"""Key in a field's metadata: the function ``(name, value) -> value`` that parses it, unless its type suffices."""
_DURATION: Final = re.compile(r"(?P<count>[1-9][0-9]{0,3})(?P<unit>[mhd])")
_UNITS: Final = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}


def parse_cidr(name: str, text: str) -> ipaddress.IPv4Network:
    """Parse an IPv4 block, which AWS accepts only in canonical form."""
    try:
        block = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise SettingsError(f"{name} must be an IPv4 block like 203.0.113.0/24, got {shown(text)}") from None
    if not isinstance(block, ipaddress.IPv4Network):
        raise SettingsError(f"{name} must be an IPv4 block like 203.0.113.0/24, got the IPv6 block {shown(text)}")
    if text != str(block):
        raise SettingsError(f"{name} must be an IPv4 block, got {shown(text)}, did you mean {block}?")
    return block


def duration(text: str) -> timedelta | None:
    """Parse a length of time like 90m, 8h or 2d; None if it is invalid."""
    match = _DURATION.fullmatch(text)
    return int(match["count"]) * _UNITS[match["unit"]] if match else None


def format_utc(time: datetime) -> str:
    """Format a time in UTC, as AWS does."""
    return f"{time.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def parse_time(text: str) -> datetime | None:
    """Parse a time; None if it is invalid or has no zone."""
    try:
        # Python 3.10 does not accept Z.
        time = datetime.fromisoformat(f"{text[:-1]}+00:00" if text.endswith(("Z", "z")) else text)
        return time.astimezone(timezone.utc).replace(microsecond=0) if time.tzinfo else None
    except (ValueError, OverflowError):
        return None


def parse(field: "dataclasses.Field[Any]", value: Any) -> Any:
    """Parse the value of a setting from cdk.json or ``-c``."""
    if parser := field.metadata.get(PARSER):
        return parser(field.name, value)
    if field.type in (int, int | None):
        return _parse_integer(field.name, value)
    if field.type in (bool, bool | None):
        return _parse_boolean(field.name, value)
    require(isinstance(value, str), field.name, value, "text")
    return value


def parse_list(name: str, value: Any) -> tuple[str, ...]:
    """Parse a list or text like ``a,b``."""
    words = [each.strip() for each in value.split(",")] if isinstance(value, str) else value
    require(isinstance(words, list), name, value, "a list, or text like a,b")
    for each in words:
        require(isinstance(each, str) and each, name, each, "text")
    return tuple(dict.fromkeys(words))


def _parse_boolean(name: str, value: Any) -> bool:
    # The command line gives text, cdk.json also true and false.
    word = str(value).strip().lower() if isinstance(value, str | bool) else ""
    require(word in ("true", "false"), name, value, "true or false")
    return word == "true"


def _parse_integer(name: str, value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    # int() does not strip everything that str.strip() does.
    text = value.strip() if isinstance(value, str) else ""
    require(re.fullmatch(r"-?[0-9]{1,9}", text), name, value, "a whole number")
    return int(text)
