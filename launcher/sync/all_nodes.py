"""Run a step of a sync on all nodes, until a common deadline, and merge the nodes' errors."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.errors import LaunchError
from launcher.hosts.hostfile import merge_errors
from launcher.transport.connection import RunnerConnection
from launcher.transport.rpc import RemoteError

CAUSE_TIMEOUT_S = 3.0
"""Seconds to collect other nodes' errors after the first error, which may only report a lost neighbor."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Deadline:
    """Deadline of the whole sync."""

    seconds: float
    at: float
    """Time on the event loop's clock."""

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """Return the deadline that ends in `seconds`."""
        return cls(seconds=seconds, at=asyncio.get_running_loop().time() + seconds)

    @property
    def left(self) -> float:
        """Return the seconds until the deadline, at least 0."""
        return max(0.0, self.at - asyncio.get_running_loop().time())


async def run_on_all(
    connections: Sequence[RunnerConnection],
    operation: Callable[[RunnerConnection], Awaitable[Any]],
    *,
    deadline: Deadline,
) -> list[Any]:
    """Run `operation` for each node; raise one LaunchError that names every node that failed on its own."""
    tasks = [asyncio.ensure_future(operation(connection)) for connection in connections]
    try:
        done, pending = await asyncio.wait(tasks, timeout=deadline.left, return_when=asyncio.FIRST_EXCEPTION)
        if pending and any(task.exception() for task in done):
            await asyncio.wait(pending, timeout=CAUSE_TIMEOUT_S)
        errors = [error for task in tasks if task.done() and (error := task.exception()) is not None]
        if errors:
            raise _combine_errors(errors, total=len(tasks))
        if pending:
            late = ", ".join(
                str(connection.host) for connection, task in zip(connections, tasks, strict=True) if not task.done()
            )
            limit = f"{deadline.seconds:g} s (--sync-timeout)"
            raise LaunchError(f"nothing started: {late}: not all files copied within {limit}")
        return [task.result() for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _combine_errors(errors: Sequence[BaseException], *, total: int) -> BaseException:
    defect = next((error for error in errors if not isinstance(error, LaunchError)), None)
    if defect is not None:
        return defect
    causes = [error for error in errors if not _only_lost_neighbor(error)] or errors[:1]
    return LaunchError(f"nothing started: {len(causes)} of {total} nodes: {merge_errors(causes)}")


def _only_lost_neighbor(error: BaseException) -> bool:
    return isinstance(error, RemoteError) and error.only_lost_neighbor
