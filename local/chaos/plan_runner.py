"""Execute a plan of faults, in its order and at its times, and log each step.

A fault hits the node that is its target at that moment. If there is none (its node is being replaced, for example),
the fault is skipped and logged.
"""

import heapq
import time
from collections.abc import Callable, Mapping, Sequence

from botocore.exceptions import ClientError

from local.chaos.plan import Plan, PlannedFault
from local.errors import LocalError
from local.faults.faults import Faults

API_SHARE = 0.5
"""Share of the nodes' requests that fail while AWS's API throttles or returns errors."""


def run_plan(
    plan: Plan,
    faults: Faults,
    *,
    instances: Callable[[], Mapping[int, str]],
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Begin and end each fault at its time; return after the last end. ``instances`` returns them by node index."""
    started = clock()
    events: list[tuple[float, int, str, tuple[str, ...]]] = [
        (fault.at_s, number, "begins", ()) for number, fault in enumerate(plan.faults)
    ]
    heapq.heapify(events)
    while events:
        at_s, number, what, names = heapq.heappop(events)
        sleep(max(0.0, at_s - (clock() - started)))
        fault = plan.faults[number]
        try:
            if what == "begins":
                names = targeted_instances(fault, instances())
                _begin(faults, fault, names, seed=plan.seed + number)
                if fault.duration_s and fault.kind != "spot-notice":
                    heapq.heappush(events, (fault.ends_s, number, "ends", names))
            else:
                _end(faults, fault, names)
        except (LocalError, ClientError) as error:  # Its node or its instance has just ended.
            what = f"passed over: {error}"
        say(f"{clock() - started:7.1f} s  {fault.kind} {' and '.join(names)} {what}")


def targeted_instances(fault: PlannedFault, instances: Mapping[int, str]) -> tuple[str, ...]:
    """Return the instances that the fault's targets mean now, each at most once. Raises LocalError."""
    left, names = dict(instances), []
    for target in fault.targets:
        node_index = target.pick_from(left)
        if node_index is None:
            raise LocalError(f"nobody is {target}")
        names.append(left.pop(node_index))
    return tuple(names)


def _begin(faults: Faults, fault: PlannedFault, names: Sequence[str], *, seed: int) -> None:
    match fault.kind:
        case "kill":
            faults.kill(*names)
        case "terminate":
            faults.terminate(*names)
        case "kill-agent":
            faults.kill_agent(*names)
        case "reboot":
            faults.reboot(*names)
        case "freeze":
            faults.freeze(*names)
        case "partition" | "partition-pair":
            faults.partition(*names)
        case "spot-notice":
            faults.spot_notice(*names, seconds=fault.duration_s)
        case "fill-disk":
            faults.fill_disk(*names)
        case "metadata-outage":
            faults.metadata_outage(*names)
        case "throttle":
            faults.throttle(share=API_SHARE, seed=seed)
        case "api-errors":
            faults.api_errors(share=API_SHARE, seed=seed)
        case "api-outage":
            faults.api_outage()


def _end(faults: Faults, fault: PlannedFault, names: Sequence[str]) -> None:
    match fault.kind:
        case "freeze":
            faults.thaw(*names)
        case "partition" | "partition-pair":
            faults.reconnect(*names)
        case "fill-disk":
            faults.free_disk(*names)
        case "metadata-outage":
            faults.metadata_back(*names)
        case "throttle":
            faults.stop_throttling()
        case "api-errors":
            faults.stop_api_errors()
        case "api-outage":
            faults.api_back()
