"""Check the values of a record: each function returns the value or raises RecordError.

A checked value is safe in ssh's command line and in files that root writes: it contains no space, quote or control
character, except the one space in a key. The functions are pure.
"""

import base64
import binascii
import json
import re
from collections import Counter
from collections.abc import Hashable, Iterable
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from bootstrap.contract import (
    ADDRESS_FIELD,
    DESIRED_NODES_FIELD,
    DRAINING_FIELD,
    GENERATION_FIELD,
    INSTANCE_ID_FIELD,
    MAX_WORKERS,
    MOUNT_FIELD,
    MOUNT_STATES,
    NODE_INDEX_FIELD,
    NODE_TYPE_FIELD,
    NODE_TYPES,
    RELEASE_FIELD,
    RELEASE_HASH_LENGTH,
    SETUP_DONE,
    SETUP_FAILED,
    SETUP_FIELD,
    SETUP_HASH_LENGTH,
    SHA256_FIELD,
    SHARED_STORAGE_FIELD,
    TEAM_KEYS_FIELD,
    NodeType,
)
from bootstrap.team_keys.keys import KeyListError, parse, render

MAX_GENERATION: Final = 10**15
MAX_NODES: Final = 1 + MAX_WORKERS
MAX_NETWORKS: Final = 8
MAX_RECORD: Final = 1024 * 1024
"""Largest record in characters: a DynamoDB item has at most 400 KB, and the state file adds indentation."""
MAX_INTEGER: Final = 16
"""Largest number of digits; Python 3.10 takes seconds to parse an integer of 400,000 digits."""
MAX_SHOWN: Final = 60
"""Longest value shown in a message, in characters."""

INSTANCE_ID: Final = re.compile(r"i-(?:[0-9a-f]{8}|[0-9a-f]{17})")
KEY: Final = re.compile(r"ssh-ed25519 ([A-Za-z0-9+/]{68})")
SHA256: Final = re.compile(r"[0-9a-f]{64}")
SHARED_STORAGE: Final = re.compile(r"(efs|lustre):(fs-(?:[0-9a-f]{8}|[0-9a-f]{17}))(?::([A-Za-z0-9_-]{1,8}))?")
"""Kind, ID and Lustre mount name of a file system (``LustreFileSystemMountName`` in the Amazon FSx API Reference)."""
SETUP: Final = re.compile(rf"(?:{SETUP_DONE}|{SETUP_FAILED}):[0-9a-f]{{{SETUP_HASH_LENGTH}}}")
RELEASE: Final = re.compile(rf"[0-9A-Za-z.+-]{{1,32}}:[0-9a-f]{{{RELEASE_HASH_LENGTH}}}")
KEY_HEADER: Final = b"\0\0\0\x0bssh-ed25519\0\0\0\x20"
"""First of the 51 bytes of a public key: the type, and the length of the rest (RFC 8709, RFC 4251)."""

Networks = tuple[IPv4Network, ...]


class RecordError(ValueError):
    """The record cannot be used; the message is one line without control characters."""


def parse_networks(text: str) -> Networks:
    """Parse the cluster's networks: CIDR blocks separated by commas, as the stack wrote them."""
    try:
        networks = tuple(map(IPv4Network, text.split(",")))
    except ValueError:
        networks = ()
    if not 1 <= len(networks) <= MAX_NETWORKS or text != ",".join(map(str, networks)):
        raise RecordError(f"networks must be 1 to {MAX_NETWORKS} IPv4 blocks such as 10.0.0.0/16, got {shown(text)}")
    return networks


def check_address(value: object, networks: Networks | None) -> str:
    """Return an IPv4 address in canonical form; it must be in one of the networks, unless `networks` is None."""
    try:
        address = IPv4Address(value) if isinstance(value, str) else None
    except ValueError:
        address = None
    if address is None or not (networks is None or any(address in network for network in networks)):
        allowed = "" if networks is None else f" in {' or '.join(map(str, networks))}"
        raise RecordError(f"{ADDRESS_FIELD} must be an IPv4 address{allowed}, got {shown(value)}")
    return str(address)


def check_node_index(value: object) -> int:
    """Return a valid node index."""
    if type(value) is not int or not 1 <= value <= MAX_NODES:  # bool is a subclass of int
        raise RecordError(f"{NODE_INDEX_FIELD} must be a whole number from 1 to {MAX_NODES}, got {shown(value)}")
    return value


def check_generation(value: object) -> int:
    """Return a valid generation of a membership."""
    if type(value) is not int or not 1 <= value <= MAX_GENERATION:
        raise RecordError(f"{GENERATION_FIELD} must be a whole number from 1 to {MAX_GENERATION}, got {shown(value)}")
    return value


def check_desired_nodes(value: object) -> int:
    """Return a valid number of desired nodes."""
    if type(value) is not int or not 0 <= value <= MAX_NODES:
        raise RecordError(f"{DESIRED_NODES_FIELD} must be a whole number from 0 to {MAX_NODES}, got {shown(value)}")
    return value


def check_instance_id(value: object) -> str:
    """Return a valid EC2 instance ID."""
    if not isinstance(value, str) or not INSTANCE_ID.fullmatch(value):
        raise RecordError(f"{INSTANCE_ID_FIELD} must be i- followed by 8 or 17 hex digits, got {shown(value)}")
    return value


def check_node_type(value: object) -> NodeType:
    """Return a valid node type."""
    for node_type in NODE_TYPES:
        if value == node_type:
            return node_type
    raise RecordError(f"{NODE_TYPE_FIELD} must be {' or '.join(NODE_TYPES)}, got {shown(value)}")


def check_flag(value: object) -> bool:
    """Return a valid flag."""
    if not isinstance(value, bool):
        raise RecordError(f"{DRAINING_FIELD} must be true or false, got {shown(value)}")
    return value


def check_key(value: object, name: str) -> str:
    """Return a public ed25519 key, which must have neither comment nor options."""
    match = KEY.fullmatch(value) if isinstance(value, str) else None
    if match is None or not _decoded(match[1]).startswith(KEY_HEADER):
        raise RecordError(f"{name} must be an ed25519 key, got {shown(value)}")
    return match[0]


def check_sha256(value: object) -> str:
    if not isinstance(value, str) or not SHA256.fullmatch(value):
        raise RecordError(f"{SHA256_FIELD} must be 64 hex digits, got {shown(value)}")
    return value


def check_shared_storage(value: object) -> str:
    """Return the file system to mount on every node, or an empty text."""
    match = SHARED_STORAGE.fullmatch(value) if isinstance(value, str) else None
    if value != "" and (match is None or (match[1] == "lustre") != bool(match[3])):
        raise RecordError(f"{SHARED_STORAGE_FIELD} must be efs:ID or lustre:ID:MOUNT_NAME, got {shown(value)}")
    return str(value)


def check_mount(value: object) -> str:
    """Return the state of a node's shared directory, or an empty text."""
    if value not in ("", *MOUNT_STATES):
        raise RecordError(f"{MOUNT_FIELD} must be one of {', '.join(MOUNT_STATES)}, got {shown(value)}")
    return str(value)


def check_setup(value: object) -> str:
    """Return the outcome of a node's setup, or an empty text."""
    if value != "" and not (isinstance(value, str) and SETUP.fullmatch(value)):
        raise RecordError(f"{SETUP_FIELD} must be {SETUP_DONE}:HASH or {SETUP_FAILED}:HASH, got {shown(value)}")
    return str(value)


def check_release(value: object) -> str:
    """Return the release that a node runs, or an empty text."""
    if value != "" and not (isinstance(value, str) and RELEASE.fullmatch(value)):
        raise RecordError(f"{RELEASE_FIELD} must be VERSION:HASH, got {shown(value)}")
    return str(value)


def check_team_keys(value: object) -> str:
    """Return the team's SSH keys, or an empty text."""
    if not isinstance(value, str):
        raise RecordError(f"{TEAM_KEYS_FIELD} must be text, got {shown(value)}")
    try:
        return render(parse(value))
    except KeyListError as error:
        raise RecordError(f"{TEAM_KEYS_FIELD}: {error}") from None


def check_unique(name: str, values: Iterable[Hashable]) -> None:
    """Check that the members' values of a field are distinct."""
    repeated = [value for value, times in Counter(values).items() if times > 1]
    if repeated:
        raise RecordError(f"{name} must be unique among the members, got {repeated[0]} more than once")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""


def parse_json(name: str, text: str) -> object:
    """Parse JSON of any origin; ``name`` is for the message."""
    if len(text) > MAX_RECORD:
        raise RecordError(f"{name} must have at most {MAX_RECORD} characters, got {len(text)}")
    try:
        return json.loads(text, parse_int=_bounded)
    except (ValueError, RecursionError):
        raise RecordError(f"{name} must be JSON, got {shown(text)}") from None


def _bounded(digits: str) -> int:
    if len(digits) > MAX_INTEGER:
        raise ValueError(f"integer must have at most {MAX_INTEGER} digits, got {len(digits)}")
    return int(digits)


def shown(value: object) -> str:
    """Render a value for a message: one short line of printable ASCII, however long or nested the value is."""
    if value is None:
        return "none"
    if not isinstance(value, (str, int, float)):
        return f"a {type(value).__name__}"
    text = ascii(value[:MAX_SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
