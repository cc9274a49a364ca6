"""Parse the settings of a cluster: find them in the CDK's context, refuse unknown names, and parse their values.

The values come from cdk.json, ``-c`` and the command line of dlcluster.
"""

import dataclasses
import difflib
import ipaddress
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final

from stacks.settings.base import SettingsError, require, shown

_CDK_OWN_KEYS: Final = frozenset({"acknowledged-issue-numbers", "cdk-migrate", "cli-telemetry"})
_CDK_OWN_PREFIXES: Final = ("@", "aws:", "aws-cdk:")
_SET_ELSEWHERE: Final = {
    "region": "the region is that of AWS_REGION or of the profile, as in: AWS_REGION=eu-west-1 cdk deploy",
    "profile": "the profile is AWS_PROFILE, as in: AWS_PROFILE=team cdk deploy",
    "account": "the account is that of the credentials (AWS_PROFILE)",
    **dict.fromkeys(("cloud", "infra"), "there is one cloud, AWS"),
    **dict.fromkeys(
        ("workdir", "file_mounts"), "dlcluster run sends the current directory, dlcluster push another one"
    ),
    **dict.fromkeys(("envs", "env"), "variables belong to a job, as in: dlcluster run --env KEY=VALUE -- train.py"),
    "run": "a job is a command, as in: dlcluster run -- train.py",
}
"""Names that users try as settings but that are set elsewhere, each with the way to set it."""

_LOOK_UP_ERROR: Final = "$providerError"
"""Key of an error in a lookup's answer (aws-cdk-lib/cx-api, PROVIDER_ERROR_KEY)."""
_LOOK_UPS: Final = {
    "vpc-provider": "the subnets of vpc_id",
    "ssm": "the image",
    "availability-zones": "the zones",
    "cc-api-provider": "the Capacity Block",
}
"""Descriptions of look-ups for messages, by the name of the CDK's provider."""


def check_settings_are_in_context(file: Path) -> None:
    """Raise SettingsError if a cdk.json has its settings beside the context, where the CDK ignores them."""
    try:
        document = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError):
        return  # the CDK, or the reader of the context, reports it
    if isinstance(document, dict) and "cluster" in document:
        raise SettingsError(
            f'{file} has "cluster" at the top level, where it is ignored: put it into "context", as in '
            '"context": {"cluster": {"worker_count": 2}}'
        )


def check_look_ups(context: Mapping[str, Any]) -> None:
    """Raise SettingsError if AWS has refused a lookup: the CDK passes its error on in place of the answer."""
    for key, found in context.items():
        if isinstance(found, Mapping) and (message := found.get(_LOOK_UP_ERROR)):
            provider = key.partition(":")[0]
            raise SettingsError(f"cannot look up {_LOOK_UPS.get(provider, provider)}: {' '.join(str(message).split())}")


def settings_in(context: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """Return the settings that have a value; a separate key overrides the ``cluster`` object's."""
    cluster = context.get("cluster")
    if cluster is None:
        cluster = {}
    if not isinstance(cluster, Mapping):
        raise SettingsError(f"cluster must be an object of settings, got {shown(cluster)}")
    single = {k: v for k, v in context.items() if k != "cluster" and not _belongs_to_cdk(k)}
    settings = {**cluster, **single}
    for key in settings:
        if key.isdecimal() and key in context:
            # The CDK's command line turns a list or a text into numbered keys.
            raise SettingsError(f'unknown setting {shown(key)}: the "context" of cdk.json must be an object')
        if key in _SET_ELSEWHERE:
            raise SettingsError(f"unknown setting {shown(key)}: {_SET_ELSEWHERE[key]}")
        if key not in known:
            raise SettingsError(f"unknown setting {shown(key)}{_did_you_mean(key, known)}")
    return {name: value for name, value in settings.items() if value not in (None, "")}


NAMES_IN_OTHER_TOOLS: Final = {
    "workers": "worker_count",
    "num_workers": "worker_count",
    "nodes": "worker_count (the nodes besides the master)",
    "num_nodes": "worker_count (the nodes besides the master)",
    "gpus": "gpu_count",
    "engines": "frameworks",
    "zone": "availability_zone",
    "vpc": "vpc_id",
    "subnet": "subnet_id",
    "name": "cluster_name",
    **dict.fromkeys(("head_instance_type", "head_node_type"), "master_instance_type"),
    "key": "key_name",
    "use_internal_ips": "private",
    **dict.fromkeys(("efs", "fsx", "storage"), "shared_storage"),
    **dict.fromkeys(("disk_size", "volume_size"), "root_volume_gib"),
    **dict.fromkeys(("instance_count", "node_count"), "worker_count (the nodes besides the master)"),
    **dict.fromkeys(("use_spot", "spot"), "purchase=spot"),
    **dict.fromkeys(("accelerators", "accelerator", "instance"), "instance_type, such as g6.xlarge"),
    **dict.fromkeys(("image_id", "image", "ami_id"), "ami"),
    **dict.fromkeys(("autostop", "auto_stop", "idle_minutes_to_autostop"), "idle_stop, such as 30m"),
    **dict.fromkeys(("autodown", "auto_down", "down"), "expires with expiry_action=delete"),
}
"""Our settings, by the names that other tools use; the nearest spelling would be a wrong setting."""


def _belongs_to_cdk(key: str) -> bool:
    # Feature flags (@aws-cdk/...), the CLI's own keys (aws:cdk:...) and cached lookups
    # (ssm:account=...): a key given with -c cannot contain the = that each lookup has.
    return key in _CDK_OWN_KEYS or key.startswith(_CDK_OWN_PREFIXES) or (":" in key and "=" in key)


def _did_you_mean(word: str, names: Sequence[str]) -> str:
    plain = re.sub(r"[^a-z0-9]+", "_", word[:100].lower())
    if plain in NAMES_IN_OTHER_TOOLS:
        return f", did you mean {NAMES_IN_OTHER_TOOLS[plain]}?"
    close = difflib.get_close_matches(plain, names, n=1, cutoff=0.5)
    return f", did you mean {close[0]}?" if close else f": docs/reference/settings.md lists all {len(names)}"


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


def parse_duration(text: str) -> timedelta | None:
    """Parse a length of time like 90m, 8h or 2d; None if it is invalid."""
    match = _DURATION.fullmatch(text)
    return int(match["count"]) * _UNITS[match["unit"]] if match else None


def format_duration(duration: timedelta) -> str:
    """Format whole minutes as parse_duration reads them, in the largest unit that has no remainder."""
    unit, length = next((unit, length) for unit, length in reversed(_UNITS.items()) if not duration % length)
    return f"{duration // length}{unit}"


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
