"""List the faults that the command line and chaos plans offer.

A fault is a method of `Faults` (faults.py), a second one that undoes it if that is possible, and an entry here. Only
faults with arguments also need `command_line.py`.
The outage of the shared storage takes arguments, and no plan draws it, so it has no entry.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from local.faults.faults import Faults


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultType:
    """A fault as the command line and chaos plans offer it."""

    begin_method: Callable[..., None]
    """Method of Faults; takes ``node_count`` instances and the ``plan_options``."""
    end_method: Callable[..., None] | None = None
    """Method of Faults that a plan calls at the end, with the same instances; None if the fault cannot be undone."""
    help: str = ""
    report: str = ""
    """Report of the command line, before the node's name; empty if the command line does not offer the fault, or parses
    its arguments itself."""
    node_count: int = 1
    """Number of nodes that a plan draws; 0 for a fault of AWS's API."""
    plan_options: tuple[str, ...] = ()
    """Options of ``begin_method`` that a plan passes: seconds, fraction, seed."""
    is_planned: bool = True
    """True if chaos plans may draw it."""

    @property
    def has_duration(self) -> bool:
        """Return True if a plan draws a duration; a spot notice's is the time until the interruption."""
        return self.end_method is not None or "seconds" in self.plan_options

    def begin(self, faults: Faults, *instances: str, **options: float) -> None:
        """Cause the fault; the method is found by its name, as in any call, so that a test may replace it."""
        getattr(faults, self.begin_method.__name__)(*instances, **options)

    def end(self, faults: Faults, *instances: str) -> None:
        """Undo the fault, if it can be undone."""
        if self.end_method is not None:
            getattr(faults, self.end_method.__name__)(*instances)


FAULT_TYPES: Final[Mapping[str, FaultType]] = {
    "kill": FaultType(
        help="end all of a node's processes at once, as when its host crashes",
        report="killed",
        begin_method=Faults.kill,
    ),
    "terminate": FaultType(help="terminate a node through EC2", report="terminated", begin_method=Faults.terminate),
    "kill-agent": FaultType(
        help="send SIGKILL to a node's agent", report="killed the agent of", begin_method=Faults.kill_agent
    ),
    "freeze": FaultType(
        help="hang a node: nothing runs, nothing answers",
        report="froze",
        begin_method=Faults.freeze,
        end_method=Faults.end_freeze,
    ),
    "partition": FaultType(begin_method=Faults.partition, end_method=Faults.end_partition),
    "partition-pair": FaultType(begin_method=Faults.partition, end_method=Faults.end_partition, node_count=2),
    "reboot": FaultType(help="reboot a node through EC2", report="rebooted", begin_method=Faults.reboot),
    "spot-notice": FaultType(begin_method=Faults.spot_notice, plan_options=("seconds",)),
    "rebalance-recommendation": FaultType(
        help="announce in a node's metadata that a spot interruption is likely",
        report="recommended a rebalance to",
        begin_method=Faults.rebalance_recommendation,
        is_planned=False,
    ),
    "fill-disk": FaultType(
        help="fill a node's disk",
        report="filled the disk of",
        begin_method=Faults.fill_disk,
        end_method=Faults.end_fill_disk,
    ),
    "metadata-outage": FaultType(
        help="stop a node's metadata service from answering",
        report="cut off the metadata of",
        begin_method=Faults.metadata_outage,
        end_method=Faults.end_metadata_outage,
    ),
    "throttle": FaultType(
        begin_method=Faults.throttle, end_method=Faults.end_throttle, node_count=0, plan_options=("fraction", "seed")
    ),
    "api-errors": FaultType(
        begin_method=Faults.api_errors,
        end_method=Faults.end_api_errors,
        node_count=0,
        plan_options=("fraction", "seed"),
    ),
    "api-outage": FaultType(begin_method=Faults.api_outage, end_method=Faults.end_api_outage, node_count=0),
}
"""Every fault by its name, except the outage of the shared storage.

The command line parses the arguments of those without a ``report`` itself."""
