"""Check what the cluster's table says: every record is hostile until it has passed here.

Each process on a node can use the node's role, and so write records: on a worker the node's own, on the master
the membership too. What passes goes into ssh's command line on an administrator's machine and into files that
root writes on every node. Agents, the launcher and dlcluster therefore read records through this module alone.

Pure: text in, values or RecordError out. Keys that a newer agent added are passed over.
"""

import json
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from bootstrap.cluster.record_fields import (
    MOST_NODES,
    Networks,
    RecordError,
    check_address,
    check_flag,
    check_instance_id,
    check_key,
    check_node_index,
    check_node_type,
    check_sha256,
    shown,
)
from bootstrap.contract import (
    ADDRESS_FIELD,
    DESIRED_NODES_FIELD,
    DRAINING_FIELD,
    ENVIRONMENT_FIELD,
    GENERATION_FIELD,
    HOST_KEY_FIELD,
    INSTANCE_ID_FIELD,
    MASTER,
    MEMBERS_FIELD,
    NODE_INDEX_FIELD,
    NODE_TYPE_FIELD,
    RECORD_VERSION,
    SHA256_FIELD,
    SSH_KEY_FIELD,
    TABLE_KEY,
    VERSION_FIELD,
    NodeType,
)

MOST_GENERATION: Final = 10**15
LONGEST_RECORD: Final = 1024 * 1024
"""Characters: DynamoDB takes no item above 400 KB, and the state file has some more spaces."""
LONGEST_INTEGER: Final = 16
"""Digits: Python 3.10 takes seconds to read an integer of 400,000."""

Item = Mapping[str, Mapping[str, Any]]
"""An item as DynamoDB's API has it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberRecord:
    """One member of the membership record."""

    node_index: int
    instance_id: str
    address: str
    node_type: NodeType
    host_key: str
    ssh_key: str
    """Public half of the cluster's key, of a master; else empty."""
    draining: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class MembershipRecord:
    """The membership record; members in the order of their indexes."""

    generation: int
    desired_nodes: int
    members: tuple[MemberRecord, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class StateRecord:
    """What an agent last made true on its node; see contract.NODE_STATE."""

    instance_id: str
    generation: int
    members: tuple[MemberRecord, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeRecord:
    """What a node says about itself.

    Only the key is vouched for (IAM lets a node write under its own id alone), so readers
    take the instance id and the node type from EC2 and not from here.
    """

    record_id: str
    instance_id: str
    node_type: str
    host_key: str
    draining: bool = False
    """It has notice of its end."""
    ssh_key: str = ""
    """Public half of the cluster's key, from a master."""

    def __post_init__(self) -> None:
        # They end up in every node's known hosts and authorized keys.
        check_key(self.host_key, f"{HOST_KEY_FIELD} of {shown(self.record_id)}")
        if self.ssh_key:
            check_key(self.ssh_key, f"{SSH_KEY_FIELD} of {shown(self.record_id)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentRecord:
    """The environment in the bucket that a master vouches for."""

    environment: str
    """Compare it only: it may be any text."""
    sha256: str


# ---- whole records ----


def parse_generation(item: Item) -> int:
    """Read the generation from its own record or from the membership's."""
    _check_version(item)
    return _number(item, GENERATION_FIELD, least=1, most=MOST_GENERATION)


def parse_membership(item: Item, networks: Networks) -> MembershipRecord:
    """Read the membership record; RecordError unless every part of it can be used."""
    return MembershipRecord(
        generation=parse_generation(item),
        desired_nodes=_number(item, DESIRED_NODES_FIELD, least=0, most=MOST_NODES),
        members=parse_members(_rows(item), networks),
    )


def parse_node(item: Item) -> NodeRecord:
    """Read a node's own record."""
    _check_version(item)
    return NodeRecord(
        record_id=_attribute(item, TABLE_KEY, "S"),
        instance_id=check_instance_id(_attribute(item, INSTANCE_ID_FIELD, "S")),
        node_type=check_node_type(_attribute(item, NODE_TYPE_FIELD, "S")),
        host_key=_attribute(item, HOST_KEY_FIELD, "S"),
        draining=_attribute(item, DRAINING_FIELD, "BOOL") if DRAINING_FIELD in item else False,
        ssh_key=_attribute(item, SSH_KEY_FIELD, "S") if SSH_KEY_FIELD in item else "",
    )


def parse_environment(item: Item) -> EnvironmentRecord:
    """Read the record of the environment."""
    _check_version(item)
    return EnvironmentRecord(
        environment=_attribute(item, ENVIRONMENT_FIELD, "S"),
        sha256=check_sha256(_attribute(item, SHA256_FIELD, "S")),
    )


def parse_state(text: str, networks: Networks | None) -> StateRecord:
    """Read a node's state file. Without networks any address will do: root wrote the file from a checked record."""
    values = _json("the state", text)
    if not isinstance(values, dict):
        raise RecordError(f"the state must be an object, got {shown(values)}")
    state = cast("dict[str, object]", values)
    generation = state.get(GENERATION_FIELD)
    if type(generation) is not int or not 1 <= generation <= MOST_GENERATION:
        raise RecordError(f"{GENERATION_FIELD} must be from 1 to {MOST_GENERATION}, got {shown(generation)}")
    return StateRecord(
        instance_id=check_instance_id(state.get(INSTANCE_ID_FIELD)),
        generation=generation,
        members=parse_members(state.get(MEMBERS_FIELD), networks),
    )


def parse_members(rows: object, networks: Networks | None) -> tuple[MemberRecord, ...]:
    """Read the list of members; no two share an index, an instance, or an address while both are there."""
    if not isinstance(rows, list) or len(rows) > MOST_NODES:
        got = f"{len(rows)}" if isinstance(rows, list) else shown(rows)
        raise RecordError(f"members must be a list of at most {MOST_NODES} members, got {got}")
    members = tuple(parse_member(row, networks) for row in rows)
    _once(NODE_INDEX_FIELD, (member.node_index for member in members))
    _once(INSTANCE_ID_FIELD, (member.instance_id for member in members))
    # EC2 gives the address of an instance that has ended to the next one, and the record may still hold both.
    _once(ADDRESS_FIELD, (member.address for member in members if not member.draining))
    return tuple(sorted(members, key=lambda member: member.node_index))


def parse_member(row: object, networks: Networks | None) -> MemberRecord:
    """Read one row of the list."""
    if not isinstance(row, dict):
        raise RecordError(f"a member must be an object, got {shown(row)}")
    values = cast("dict[str, object]", row)
    member = MemberRecord(
        node_index=check_node_index(values.get(NODE_INDEX_FIELD)),
        instance_id=check_instance_id(values.get(INSTANCE_ID_FIELD)),
        address=check_address(values.get(ADDRESS_FIELD), networks),
        node_type=check_node_type(values.get(NODE_TYPE_FIELD)),
        host_key=check_key(values.get(HOST_KEY_FIELD), HOST_KEY_FIELD),
        ssh_key=check_key(key, SSH_KEY_FIELD) if (key := values.get(SSH_KEY_FIELD, "")) != "" else "",
        draining=check_flag(values.get(DRAINING_FIELD, False)),
    )
    if (member.node_index == 1) != (member.node_type == MASTER):
        raise RecordError(
            f"{NODE_INDEX_FIELD} 1 must be the {MASTER}'s alone, got {member.node_index} of a {member.node_type}"
        )
    return member


def usable_members(item: Item, networks: Networks) -> tuple[MemberRecord, ...]:
    """Read those members of a bad membership record that are right by themselves: who may keep an index."""
    try:
        rows = _rows(item)
    except RecordError:
        return ()
    found: list[MemberRecord] = []
    for row in rows if isinstance(rows, list) else []:
        try:
            member = parse_member(row, networks)
        except RecordError:
            continue
        if not any(_collide(member, other) for other in found):
            found.append(member)
    return tuple(sorted(found, key=lambda member: member.node_index))


def _collide(one: MemberRecord, other: MemberRecord) -> bool:
    return one.node_index == other.node_index or one.instance_id == other.instance_id or one.address == other.address


# ---- parts of records ----


def _check_version(item: Item) -> None:
    """A newer agent's record is as good as ours: what it adds is passed over, what it lacks is an error."""
    try:
        _number(item, VERSION_FIELD, least=RECORD_VERSION, most=10**9)
    except RecordError as error:
        raise RecordError(f"record {error}") from None


def _attribute(item: Item, name: str, kind: str) -> Any:
    """Value of an attribute of one of DynamoDB's types."""
    found: object = item.get(name)
    value = cast("Mapping[str, object]", found).get(kind) if isinstance(found, Mapping) else None
    if not isinstance(value, bool if kind == "BOOL" else str):
        raise RecordError(f"{name} must be an attribute of type {kind}, got {shown(found)}")
    return value


def _number(item: Item, name: str, *, least: int, most: int) -> int:
    text = _attribute(item, name, "N")
    number = int(text) if re.fullmatch(rf"[0-9]{{1,{LONGEST_INTEGER}}}", text) else -1
    if not least <= number <= most:
        raise RecordError(f"{name} must be a whole number from {least} to {most}, got {shown(text)}")
    return number


def _rows(item: Item) -> object:
    return _json(MEMBERS_FIELD, _attribute(item, MEMBERS_FIELD, "S"))


def _json(name: str, text: str) -> object:
    if len(text) > LONGEST_RECORD:
        raise RecordError(f"{name} must have at most {LONGEST_RECORD} characters, got {len(text)}")
    try:
        return json.loads(text, parse_int=_bounded)
    except (ValueError, RecursionError):
        raise RecordError(f"{name} must be JSON, got {shown(text)}") from None


def _bounded(digits: str) -> int:
    if len(digits) > LONGEST_INTEGER:
        raise ValueError(f"an integer of {len(digits)} digits")
    return int(digits)


def _once(name: str, values: Iterable[Hashable]) -> None:
    twice: Sequence[Hashable] = [value for value, times in Counter(values).items() if times > 1]
    if twice:
        raise RecordError(f"{name} must be each member's own, got {twice[0]} more than once")
