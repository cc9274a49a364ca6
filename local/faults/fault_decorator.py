"""Register the faults that the command line and chaos plans offer: the decorators of the methods of `Faults`.

To add a fault, add a method with a decorator to `Faults` in faults.py; this file stays as it is. Importing faults.py,
which the package does, fills the registry.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

Method = Callable[..., None]
"""Method of Faults, called with the faults as its first argument."""


class Arguments(Enum):
    """Arguments of a fault on the command line; local.commands.fault parses each kind."""

    NODE = auto()
    NODE_AND_SECONDS = auto()
    NODE_AND_OTHER = auto()
    API_REQUESTS = auto()
    NODE_OR_ALL = auto()
    MOUNT_DELAY = auto()


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultType:
    """A fault as the command line and chaos plans offer it."""

    begin: Method
    """Takes ``node_count`` instances and the ``plan_options`` from a plan, its ``arguments`` from the command line."""
    end: Method | None = None
    """Undoes the fault of the same instances; None if it cannot be undone."""
    arguments: Arguments = Arguments.NODE
    on_command_line: bool = True
    """True if the command line offers the fault."""
    help: str = ""
    report: str = ""
    """Report of the command line once the fault has begun; ``{target}`` denotes what is affected."""
    node_count: int = 1
    """Number of nodes that a plan draws; 0 for a fault of AWS's API."""
    plan_options: tuple[str, ...] = ()
    """Options of ``begin`` that a plan passes: seconds, fraction, seed."""
    in_random_plans: bool = True
    """True if a chaos plan may include it."""

    @property
    def has_duration(self) -> bool:
        """Return True if a plan draws a duration; a spot notice's is the time until the interruption."""
        return self.end is not None or "seconds" in self.plan_options


FAULT_TYPES: Final[dict[str, FaultType]] = {}
"""Every fault by its name on the command line and in plans."""


def fault(
    name: str,
    *,
    help: str = "",  # noqa: A002  (argparse's name for it)
    report: str = "",
    arguments: Arguments = Arguments.NODE,
    on_command_line: bool = True,
    node_count: int = 1,
    plan_options: tuple[str, ...] = (),
    in_random_plans: bool = True,
) -> Callable[[Method], Method]:
    """Register a method of Faults as the start of a fault."""

    def register(method: Method) -> Method:
        FAULT_TYPES[name] = FaultType(
            begin=method,
            arguments=arguments,
            on_command_line=on_command_line,
            help=help,
            report=report,
            node_count=node_count,
            plan_options=plan_options,
            in_random_plans=in_random_plans,
        )
        return method

    return register


def undoes(*names: str) -> Callable[[Method], Method]:
    """Register a method of Faults as the end of faults."""

    def register(method: Method) -> Method:
        for name in names:
            FAULT_TYPES[name] = replace(FAULT_TYPES[name], end=method)
        return method

    return register
