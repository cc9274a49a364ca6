"""The table that ``dlcluster status`` prints."""

from collections.abc import Mapping, Sequence

from cli.nodes import Machine, Membership

COLUMNS = ("SLOT", "NODE", "INSTANCE", "TYPE", "ZONE", "PRIVATE", "PUBLIC", "STATE")


def status_text(name: str, membership: Membership, machines: Mapping[str, Machine]) -> str:
    """One line of summary and one a node."""
    members = membership.members
    summary = f"{name}: {len(members)} of {membership.expected} nodes, generation {membership.generation}"
    rows = [
        (
            str(member.slot),
            member.short_name,
            member.instance_id,
            (machine := machines[member.instance_id]).instance_type,
            machine.zone,
            member.address,
            machine.public_address,
            machine.state,
        )
        for member in members
    ]
    return f"{summary}\n{_table([COLUMNS, *rows])}"


def missing_text(missing: int, *, expected: int, newest: str) -> str:
    """What stands below the table of a cluster that is not whole."""
    told = f"; newest scaling activity: {newest}" if newest else ""
    return f"{missing} of {expected} nodes missing (dlcluster why tells more){told}\n"


def _table(rows: Sequence[Sequence[str]]) -> str:
    filled = [[cell or "-" for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*filled, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in filled)
    return "".join(f"{line}\n" for line in lines)
