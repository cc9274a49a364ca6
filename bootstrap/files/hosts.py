"""Render the lines of /etc/hosts."""

from collections.abc import Iterable, Mapping

from bootstrap.cluster.membership import Member
from bootstrap.contract import MASTER_HOST, MASTER_INDEX, worker_host


def host_names(node_index: int) -> list[str]:
    """Return the host names of a node: the master is also a training node, so the master's index has two."""
    return [MASTER_HOST, worker_host(node_index)] if node_index == MASTER_INDEX else [worker_host(node_index)]


def in_index_order(members: Iterable[Member]) -> list[Member]:
    """Sort members by node index."""
    return sorted(members, key=lambda member: member.node_index)


def hosts_lines(members: Iterable[Member], *, extra_names: Mapping[int, str] | None = None) -> str:
    """Render one line per member; ``extra_names`` maps node indexes to additional names."""
    extra_names = extra_names or {}

    def line(member: Member) -> str:
        extra = [extra_names[member.node_index]] if member.node_index in extra_names else []
        return f"{member.address} {' '.join([*host_names(member.node_index), *extra])}\n"

    return "".join(map(line, in_index_order(members)))
