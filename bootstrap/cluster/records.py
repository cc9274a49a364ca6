"""Define and parse the records of the cluster's table; every record is hostile until it has been checked here.

Any process on a node can use the node's role to write records: on a worker the node's own record, on the master also
the membership. Checked values end up in ssh's command line on an administrator's machine and in files that root writes
on every node. Agents, the launcher and dlcluster therefore read records only through this module.

The functions are pure and raise RecordError. They ignore keys that a newer agent has added.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from bootstrap.cluster.record_validation import (
    MAX_GENERATION,
    MAX_INTEGER,
    MAX_NODES,
    Networks,
    RecordError,
    check_address,
    check_desired_nodes,
    check_flag,
    check_generation,
    check_instance_id,
    check_key,
    check_mount,
    check_node_index,
    check_node_type,
    check_release,
    check_setup,
    check_sha256,
    check_shared_storage,
    check_team_keys,
    check_unique,
    parse_json,
    shown,
)
from bootstrap.contract import (
    ADDRESS_FIELD,
    DESIRED_NODES_FIELD,
    DRAINING_FIELD,
    GENERATION_FIELD,
    HOST_KEY_FIELD,
    INSTANCE_ID_FIELD,
    MASTER,
    MASTER_INDEX,
    MASTER_TRAINS_FIELD,
    MEMBERS_FIELD,
    MOUNT_FIELD,
    MXNET_ENVIRONMENT_FIELD,
    NODE_INDEX_FIELD,
    NODE_TYPE_FIELD,
    RECORD_VERSION,
    RELEASE_FIELD,
    SETUP_FIELD,
    SHA256_FIELD,
    SHARED_STORAGE_FIELD,
    SSH_KEY_FIELD,
    TABLE_KEY,
    TEAM_KEYS_FIELD,
    VERSION_FIELD,
    NodeType,
)

Item = Mapping[str, Mapping[str, Any]]
"""An item in the form of DynamoDB's API."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberRecord:
    """One member of the membership record."""

    node_index: int
    instance_id: str
    address: str
    node_type: NodeType
    host_key: str
    ssh_key: str
    """Public half of the cluster's key; empty on a worker."""
    draining: bool
    mount: str = ""
    """State of the shared directory; empty without shared storage."""
    setup: str = ""  # contract.SETUP_FIELD
    release: str = ""  # contract.RELEASE_FIELD


@dataclass(frozen=True, kw_only=True, slots=True)
class MembershipRecord:
    """The membership record, with the members in index order."""

    generation: int
    desired_nodes: int
    members: tuple[MemberRecord, ...]
    shared_storage: str = ""
    """File system to mount on every node; empty while there is none."""
    master_trains: bool = True  # contract.MASTER_TRAINS_FIELD
    team_keys: str = ""  # contract.TEAM_KEYS_FIELD


@dataclass(frozen=True, kw_only=True, slots=True)
class StateRecord:
    """The state file of a node, written by its agent; see contract.NODE_STATE_FILE."""

    instance_id: str
    generation: int
    desired_nodes: int
    members: tuple[MemberRecord, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeRecord:
    """A node's record about itself.

    Only its key in the table is trustworthy, since IAM lets a node write no other. Readers therefore take the instance
    ID and the node type from AWS, not from this record.
    """

    record_id: str
    instance_id: str
    node_type: str
    host_key: str
    draining: bool = False
    """True if the node has a termination notice."""
    ssh_key: str = ""
    """Public half of the cluster's key; empty on a worker."""
    mount: str = ""
    """State of the shared directory; empty without shared storage."""
    setup: str = ""
    """Outcome of the setup (contract.SETUP_FIELD); empty without one."""
    release: str = ""  # contract.RELEASE_FIELD

    def __post_init__(self) -> None:
        # Every node writes these keys into its known hosts and authorized keys.
        check_key(self.host_key, f"{HOST_KEY_FIELD} of {shown(self.record_id)}")
        if self.ssh_key:
            check_key(self.ssh_key, f"{SSH_KEY_FIELD} of {shown(self.record_id)}")
        check_mount(self.mount)
        check_setup(self.setup)
        check_release(self.release)


@dataclass(frozen=True, kw_only=True, slots=True)
class MxnetEnvironmentRecord:
    """Record of the MXNet environment whose archive a master has stored."""

    environment: str
    """Name of the environment. It is not checked, so only compare it."""
    sha256: str


def parse_generation(item: Item) -> int:
    """Parse the generation, from its own record or from the membership record."""
    _check_version(item)
    return _number(item, GENERATION_FIELD, minimum=1, maximum=MAX_GENERATION)


def parse_membership(item: Item, networks: Networks) -> MembershipRecord:
    """Parse the membership record. Raises RecordError if any part of it is bad."""
    return MembershipRecord(
        generation=parse_generation(item),
        desired_nodes=_number(item, DESIRED_NODES_FIELD, minimum=0, maximum=MAX_NODES),
        members=parse_members(_rows(item), networks),
        shared_storage=check_shared_storage(_optional(item, SHARED_STORAGE_FIELD)),
        master_trains=_attribute(item, MASTER_TRAINS_FIELD, "BOOL") if MASTER_TRAINS_FIELD in item else True,
        team_keys=check_team_keys(_optional(item, TEAM_KEYS_FIELD)),
    )


def parse_node(item: Item) -> NodeRecord:
    """Parse a node's own record."""
    _check_version(item)
    return NodeRecord(
        record_id=_attribute(item, TABLE_KEY, "S"),
        instance_id=check_instance_id(_attribute(item, INSTANCE_ID_FIELD, "S")),
        node_type=check_node_type(_attribute(item, NODE_TYPE_FIELD, "S")),
        host_key=_attribute(item, HOST_KEY_FIELD, "S"),
        draining=_attribute(item, DRAINING_FIELD, "BOOL") if DRAINING_FIELD in item else False,
        ssh_key=_optional(item, SSH_KEY_FIELD),
        mount=_optional(item, MOUNT_FIELD),
        setup=_optional(item, SETUP_FIELD),
        release=_optional(item, RELEASE_FIELD),
    )


def parse_mxnet_environment(item: Item) -> MxnetEnvironmentRecord:
    """Parse the record of the MXNet environment."""
    _check_version(item)
    return MxnetEnvironmentRecord(
        environment=_attribute(item, MXNET_ENVIRONMENT_FIELD, "S"),
        sha256=check_sha256(_attribute(item, SHA256_FIELD, "S")),
    )


def parse_state(text: str, networks: Networks | None) -> StateRecord:
    """Parse a node's state file. Without networks, accept any address: root wrote the file from a checked record."""
    values = parse_json("state", text)
    if not isinstance(values, dict):
        raise RecordError(f"state must be a JSON object, got {shown(values)}")
    state = cast("dict[str, object]", values)
    members = parse_members(state.get(MEMBERS_FIELD), networks)
    return StateRecord(
        instance_id=check_instance_id(state.get(INSTANCE_ID_FIELD)),
        generation=check_generation(state.get(GENERATION_FIELD)),
        # Agents of earlier releases did not write it.
        desired_nodes=check_desired_nodes(state.get(DESIRED_NODES_FIELD, len(members))),
        members=members,
    )


def parse_members(rows: object, networks: Networks | None) -> tuple[MemberRecord, ...]:
    """Parse the list of members; no two may share an index, an instance ID or, while both are present, an address."""
    if not isinstance(rows, list) or len(rows) > MAX_NODES:
        got = f"{len(rows)}" if isinstance(rows, list) else shown(rows)
        raise RecordError(f"{MEMBERS_FIELD} must be a list of at most {MAX_NODES} members, got {got}")
    members = tuple(parse_member(row, networks) for row in rows)
    check_unique(NODE_INDEX_FIELD, (member.node_index for member in members))
    check_unique(INSTANCE_ID_FIELD, (member.instance_id for member in members))
    # EC2 may reuse the address of a terminated instance while the record still contains both.
    check_unique(ADDRESS_FIELD, (member.address for member in members if not member.draining))
    return tuple(sorted(members, key=lambda member: member.node_index))


def parse_member(row: object, networks: Networks | None) -> MemberRecord:
    """Parse one member of the list."""
    if not isinstance(row, dict):
        raise RecordError(f"member must be a JSON object, got {shown(row)}")
    values = cast("dict[str, object]", row)
    member = MemberRecord(
        node_index=check_node_index(values.get(NODE_INDEX_FIELD)),
        instance_id=check_instance_id(values.get(INSTANCE_ID_FIELD)),
        address=check_address(values.get(ADDRESS_FIELD), networks),
        node_type=check_node_type(values.get(NODE_TYPE_FIELD)),
        host_key=check_key(values.get(HOST_KEY_FIELD), HOST_KEY_FIELD),
        ssh_key=check_key(key, SSH_KEY_FIELD) if (key := values.get(SSH_KEY_FIELD, "")) != "" else "",
        draining=check_flag(values.get(DRAINING_FIELD, False)),
        mount=check_mount(values.get(MOUNT_FIELD, "")),
        setup=check_setup(values.get(SETUP_FIELD, "")),
        release=check_release(values.get(RELEASE_FIELD, "")),
    )
    if (member.node_index == MASTER_INDEX) != (member.node_type == MASTER):
        got = f"{member.node_index} on a {member.node_type}"
        raise RecordError(f"{NODE_INDEX_FIELD} must be {MASTER_INDEX} on the {MASTER} only, got {got}")
    return member


def usable_members(item: Item, networks: Networks) -> tuple[MemberRecord, ...]:
    """Parse the valid members of a bad membership record; they may keep their indexes."""
    try:
        rows = _rows(item)
    except RecordError:
        return ()
    members: list[MemberRecord] = []
    for row in rows if isinstance(rows, list) else []:
        try:
            member = parse_member(row, networks)
        except RecordError:
            continue
        if not any(_collide(member, other) for other in members):
            members.append(member)
    return tuple(sorted(members, key=lambda member: member.node_index))


def _collide(new: MemberRecord, other: MemberRecord) -> bool:
    return new.node_index == other.node_index or new.instance_id == other.instance_id or new.address == other.address


def _check_version(item: Item) -> None:
    """Accept this version and newer ones; extra keys are ignored, missing ones are errors."""
    try:
        _number(item, VERSION_FIELD, minimum=RECORD_VERSION, maximum=10**9)
    except RecordError as error:
        raise RecordError(f"record {error}") from None


def _attribute(item: Item, name: str, kind: str) -> Any:
    """Return the value of an attribute, which must have the given DynamoDB type."""
    attribute: object = item.get(name)
    value = cast("Mapping[str, object]", attribute).get(kind) if isinstance(attribute, Mapping) else None
    if not isinstance(value, bool if kind == "BOOL" else str):
        raise RecordError(f"{name} must be an attribute of type {kind}, got {shown(attribute)}")
    return value


def _optional(item: Item, name: str) -> str:
    """Return a text field; empty if the record lacks it."""
    return str(_attribute(item, name, "S")) if name in item else ""


def _number(item: Item, name: str, *, minimum: int, maximum: int) -> int:
    text = _attribute(item, name, "N")
    number = int(text) if re.fullmatch(rf"[0-9]{{1,{MAX_INTEGER}}}", text) else -1
    if not minimum <= number <= maximum:
        raise RecordError(f"{name} must be a whole number from {minimum} to {maximum}, got {shown(text)}")
    return number


def _rows(item: Item) -> object:
    return parse_json(MEMBERS_FIELD, _attribute(item, MEMBERS_FIELD, "S"))
