"""The table that ``dlcluster status`` prints."""

from collections.abc import Mapping, Sequence

from cli.aws.nodes import RUNNING, Machine, Membership, missing_count, running_count
from cli.aws.scaling import Activity, distinct_failures

COLUMNS = ("SLOT", "NODE", "INSTANCE", "TYPE", "ZONE", "PRIVATE", "PUBLIC", "STATE")


def status_text(name: str, membership: Membership, machines: Mapping[str, Machine], *, desired_nodes: int) -> str:
    """One line of summary and one a node."""
    members = membership.members
    running = running_count(membership, machines)
    summary = f"{name}: {running} of {desired_nodes} nodes, generation {membership.generation}"
    rows = [
        (
            str(member.node_index),
            member.short_name,
            member.instance_id,
            (machine := machines[member.instance_id]).instance_type,
            machine.zone,
            member.address,
            machine.public_address,
            f"{machine.state}, leaving" if member.draining and machine.state == RUNNING else machine.state,
        )
        for member in members
    ]
    return f"{summary}\n{_table([COLUMNS, *rows])}"


def missing_text(
    membership: Membership, machines: Mapping[str, Machine], *, desired_nodes: int, told: Sequence[str]
) -> str:
    """What stands below the table of a cluster that is not whole, with what is told of the reason."""
    missing, running = (
        missing_count(membership, machines, desired_nodes=desired_nodes),
        running_count(membership, machines),
    )
    numbers = f"{len(membership.members)} in the list, {running} of them running"
    lines = (f"{missing} of {desired_nodes} nodes missing: {numbers} (dlcluster why tells more)", *told)
    return "".join(f"{line}\n" for line in lines)


def reasons(activities: Sequence[Activity]) -> list[str]:
    """EC2's own reason, and what was tried since: a failure may be long over."""
    found = [f"newest failure of EC2 Auto Scaling: {failure}" for failure in distinct_failures(activities)[:1]]
    if activities and not activities[0].is_failure:
        found.append(f"newest activity of EC2 Auto Scaling: {activities[0]}")
    return found


def _table(rows: Sequence[Sequence[str]]) -> str:
    filled = [[cell or "-" for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*filled, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in filled)
    return "".join(f"{line}\n" for line in lines)
