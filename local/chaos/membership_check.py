"""Check that every node knows the same, correct membership: compare AWS's answers with the nodes' files.

Pure functions: no I/O.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from bootstrap.contract import MARKER_BEGIN, MARKER_END, MASTER, MASTER_HOST, MASTER_INDEX, NodeType, worker_host

_Value = TypeVar("_Value", int, str)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpectedMember:
    """A node that must be a member: in service in its Auto Scaling group, and running."""

    instance_id: str
    address: str
    node_type: NodeType
    host_key: str
    """Host key of its sshd, read from its disk; empty without one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeView:
    """One node's knowledge of the membership, as the chaos observer read it from the node's files."""

    node_index: int
    generation: int
    members: tuple[tuple[int, str], ...]
    """Pairs of a node index and its instance."""
    hosts: Mapping[str, str]
    """Addresses by the names in our block of /etc/hosts."""
    workers: tuple[str, ...]
    """Lines of the workers file."""
    known_hosts: Mapping[str, str]
    """Keys by the names in our block of the known hosts."""
    workers_count: str
    """Value that processes see in their environment."""

    @property
    def instances(self) -> dict[int, str]:
        """Return instance ids by node index."""
        return dict(self.members)


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """The membership on which all nodes agreed."""

    generation: int
    instances: Mapping[int, str]
    """Instance ids by node index."""


def block(text: str) -> list[str]:
    """Return our lines of a shared file."""
    lines = text.splitlines()
    if MARKER_BEGIN not in lines or MARKER_END not in lines:
        return []
    return lines[lines.index(MARKER_BEGIN) + 1 : lines.index(MARKER_END)]


def parse_hosts(text: str) -> dict[str, str]:
    """Return addresses by name; for a name listed twice the first, like the resolver."""
    addresses: dict[str, str] = {}
    for address, *names in map(str.split, block(text)):
        for name in names:
            addresses.setdefault(name, address)
    return addresses


def parse_known_hosts(text: str) -> dict[str, str]:
    """Return keys by name; join several keys of one name, because ssh would accept any of them."""
    keys: dict[str, str] = {}
    for names, key in (line.split(" ", 1) for line in block(text)):
        for name in names.split(","):
            keys[name] = f"{keys[name]}, {key}" if name in keys else key
    return keys


def parse_variables(text: str) -> dict[str, str]:
    """Return the variables of our block of /etc/environment."""
    return dict(line.split("=", 1) for line in block(text) if "=" in line)


def host_names(node_index: int) -> list[str]:
    return [MASTER_HOST, worker_host(node_index)] if node_index == MASTER_INDEX else [worker_host(node_index)]


def differences(
    *,
    desired_nodes: int,
    instances: Iterable[ExpectedMember],
    views: Mapping[str, NodeView | str],
    previous: Observation | None = None,
) -> list[str]:
    """List all errors, one line each; ``views`` contains, by instance id, a node's knowledge or why it gives none."""
    expected = {instance.instance_id: instance for instance in instances}
    lines = []
    if len(expected) != desired_nodes:
        lines.append(f"the groups want {desired_nodes} nodes, {len(expected)} are in service")
    readable = {name: view for name, view in views.items() if isinstance(view, NodeView)}
    lines += [f"{name}: {view}" for name, view in views.items() if not isinstance(view, NodeView)]
    lines += [f"{name}: no report" for name in expected if name not in views]
    lines += _disagreements({name: str(view.generation) for name, view in readable.items()}, "generation")
    lines += _disagreements({name: _listed(view.members) for name, view in readable.items()}, "membership")
    for name, view in readable.items():
        lines += [f"{name}: {text}" for text in _node_errors(name, view, expected)]
    if previous is not None and readable:
        lines += _changes_since(previous, next(iter(readable.values())), expected)
    return lines


def _listed(members: Iterable[tuple[int, str]]) -> str:
    return " ".join(f"{node_index}={instance}" for node_index, instance in sorted(members))


def _disagreements(values: Mapping[str, str], what: str) -> list[str]:
    """Return a line if the nodes differ."""
    if len(set(values.values())) < 2:
        return []
    return [f"{what} differs: {', '.join(f'{name} has {value}' for name, value in sorted(values.items()))}"]


def _node_errors(name: str, view: NodeView, expected: Mapping[str, ExpectedMember]) -> Iterator[str]:
    """Yield one node's errors about itself or others."""
    yield from (
        f"has several members with index {node_index}"
        for node_index in _duplicates(node_index for node_index, _ in view.members)
    )
    yield from (
        f"has {instance} with several indexes" for instance in _duplicates(instance for _, instance in view.members)
    )
    yield from (
        f"lacks {instance}" for instance in sorted(expected.keys() - {instance for _, instance in view.members})
    )
    yield from (
        f"still has {instance} with index {node_index}"
        for node_index, instance in view.members
        if instance not in expected
    )
    if view.instances.get(view.node_index) != name:
        yield f"says that its index is {view.node_index}, where it has {view.instances.get(view.node_index, 'nobody')}"
    members = {
        node_index: expected[instance] for node_index, instance in view.instances.items() if instance in expected
    }
    for node_index, member in members.items():
        if (node_index == MASTER_INDEX) != (member.node_type == MASTER):
            yield f"has {member.instance_id}, a {member.node_type}, with index {node_index}"
    right_hosts = {alias: member.address for node_index, member in members.items() for alias in host_names(node_index)}
    yield from _mismatches("the hosts file", view.hosts, right_hosts)
    keys = {alias: m.host_key for node_index, m in members.items() for alias in (*host_names(node_index), m.address)}
    yield from _mismatches("the known hosts", view.known_hosts, keys)
    right_workers = tuple(worker_host(node_index) for node_index in sorted(view.instances))
    if view.workers != right_workers:
        yield f"the workers file has {' '.join(view.workers) or 'nothing'}, must have {' '.join(right_workers)}"
    if view.workers_count != str(len(expected)):
        yield f"processes see {view.workers_count or 'no'} workers, must see {len(expected)}"


def _duplicates(values: Iterable[_Value]) -> list[_Value]:
    return [value for value, times in Counter(values).items() if times > 1]


def _mismatches(what: str, actual: Mapping[str, str], expected: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(actual.keys() | expected.keys()):
        if actual.get(name) != expected.get(name):
            yield f"{what} has {actual.get(name, 'nothing')} for {name}, must have {expected.get(name, 'nothing')}"


def _changes_since(previous: Observation, now: NodeView, expected: Mapping[str, ExpectedMember]) -> Iterator[str]:
    """Yield survivors whose index changed, and a generation that decreased.

    No run lasts long enough for the generation to wrap around at MAX_GENERATION, so a smaller one is older.
    """
    held = {instance: node_index for node_index, instance in now.instances.items()}
    for node_index, instance in previous.instances.items():
        if instance in expected and instance in held and held[instance] != node_index:
            yield f"{instance} had index {node_index} and now has {held[instance]}"
    if now.generation < previous.generation:
        yield f"generation went back from {previous.generation} to {now.generation}"
