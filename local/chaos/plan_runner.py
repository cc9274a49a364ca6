"""Execute a plan of faults, in its order and at its times, and log each step.

A fault affects the node that is its target at that moment. If there is none (for example while its node is being
replaced), the fault is skipped and logged.
"""

import heapq
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from botocore.exceptions import ClientError

from local.chaos.plan import Plan, PlannedFault
from local.errors import LocalError
from local.faults.fault_decorator import FAULT_TYPES
from local.faults.faults import Faults

API_FRACTION = 0.5
"""Fraction of the nodes' requests that fail while AWS's API throttles or returns errors."""


@dataclass(frozen=True, order=True, kw_only=True, slots=True)
class Event:
    """The start or the end of a planned fault; ordered by time."""

    at_s: float
    fault_number: int
    is_end: bool = False
    instances: tuple[str, ...] = ()
    """Instances that the fault affected; its end undoes it on these."""


def run_plan(
    plan: Plan,
    faults: Faults,
    *,
    instances: Callable[[], Mapping[int, str]],
    log: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Start and end each fault at its time; return after the last end. ``instances`` returns them by node index."""
    started = clock()
    events = [Event(at_s=fault.at_s, fault_number=number) for number, fault in enumerate(plan.faults)]
    heapq.heapify(events)
    while events:
        event = heapq.heappop(events)
        sleep(max(0.0, event.at_s - (clock() - started)))
        fault, hit = plan.faults[event.fault_number], event.instances
        fault_type = FAULT_TYPES[fault.kind]
        try:
            if event.is_end and fault_type.end is not None:
                fault_type.end(faults, *hit)
            else:
                hit = targeted_instances(fault, instances())
                values = {"seconds": fault.duration_s, "fraction": API_FRACTION, "seed": plan.seed + event.fault_number}
                fault_type.begin(faults, *hit, **{name: values[name] for name in fault_type.plan_options})
                if fault.duration_s and fault_type.end is not None:
                    end = Event(at_s=fault.ends_at_s, fault_number=event.fault_number, is_end=True, instances=hit)
                    heapq.heappush(events, end)
            outcome = "ends" if event.is_end else "begins"
        except (LocalError, ClientError) as error:  # its node or its instance has just ended
            outcome = f"skipped: {error}"
        log(f"{clock() - started:7.1f} s  {fault.kind} {' and '.join(hit)} {outcome}")


def targeted_instances(fault: PlannedFault, instances: Mapping[int, str]) -> tuple[str, ...]:
    """Return the instances that the fault's targets currently denote, each at most once. Raises LocalError."""
    remaining, targeted = dict(instances), []
    for target in fault.targets:
        node_index = target.resolve(remaining)
        if node_index is None:
            raise LocalError(f"no instance {target}")
        targeted.append(remaining.pop(node_index))
    return tuple(targeted)
