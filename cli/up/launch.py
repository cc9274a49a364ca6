"""Launch the nodes of an attempt with ``autoscaling:LaunchInstances``, which returns the instances or EC2's reason.

AWS: "Launch instances synchronously" (Amazon EC2 Auto Scaling User Guide): a call launches at most 100 instances,
perhaps only some of them. A slow call may end without instances and without errors while EC2 continues; calling again
with the same token returns the outcome.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from botocore.exceptions import ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NoConnectionError

from bootstrap.aws.group_sizes import ClusterSizes
from bootstrap.contract import MASTER, WORKER, NodeType, group_name
from cli.aws.clients import Clients
from cli.errors import ClusterError
from cli.node_groups.groups import GroupStates
from cli.up.attempt import MAX_BATCH, ZoneAttempt

ANSWER_TIMEOUT_S: Final = 300.0
"""Seconds during which an unanswered launch is repeated."""
RETRY_S: Final = 5.0
_OUTCOME_UNKNOWN: Final = (
    "IdempotentCallInProgress",
    "ResourceContention",
    "ScalingActivityInProgress",
    "Throttling",
    "RequestLimitExceeded",
    "InternalError",
    "InternalFailure",
    "ServiceUnavailable",
    "Unavailable",
    # From DynamoDB, which stores the lock:
    "InternalServerError",
    "ProvisionedThroughputExceeded",
)
"""Prefixes of error codes after which it is unknown whether instances were launched."""
NO_CODE: Final = "NoCode"
"""Our own code for an error of EC2 that has none."""
ZONE_CAPACITY_CODES: Final = frozenset(
    {
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "InsufficientCapacity",
        "UnfulfillableCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientCapacityOnHost",
        "InsufficientFreeAddressesInSubnet",
        "MaxSpotInstanceCountExceeded",
        "SpotMaxPriceTooLow",
        "Unsupported",
        "ReservationCapacityExceeded",
        "RequestLimitExceeded",
        "InternalError",
        "ServiceUnavailable",
        "Unavailable",
    }
)
"""Codes in a response's Errors after which another zone, or a later attempt, may succeed.

Some are also in _OUTCOME_UNKNOWN: as the code of a failed call they leave the outcome open, but in the response's
Errors they mean that nothing was launched.
"""


class LaunchOutcomeUnknownError(ClusterError):
    """AWS did not report the outcome of a launch: its instances may still arrive."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchResult:
    """Number of nodes that EC2 launched, and its error if they are fewer than requested."""

    count: int
    code: str = ""
    """EC2's code if it did not launch all."""
    message: str = ""

    @property
    def reason(self) -> str:
        """Return EC2's own reason on one line; empty if all nodes were launched."""
        return " ".join(f"{self.code}: {self.message}".split()) if self.code else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """Launch of the nodes that the groups lack."""

    clients: Clients
    name: str
    attempt: ZoneAttempt
    declared: ClusterSizes
    before_call: Callable[[], None] = lambda: None
    """Called before each request. It raises an error if nothing more may be launched.

    A launch may stay unanswered for ANSWER_TIMEOUT_S, so check every time.
    """

    def run(self, groups: GroupStates) -> dict[NodeType, LaunchResult]:
        """Launch the workers, then the master if all were launched. Raises ClusterError.

        The workers come first because capacity for many nodes is harder to find. Skip a group that already has its
        nodes, because AWS does not document how long it remembers a token.
        """
        results: dict[NodeType, LaunchResult] = {}
        for node_type in (WORKER, MASTER):
            desired, existing = self.declared[node_type].desired_capacity, len(groups[node_type].instances)
            is_complete = existing >= desired
            result = LaunchResult(count=existing) if is_complete else self._launch_group(node_type, desired)
            results[node_type] = result
            if result.code:
                break
        return results

    def _launch_group(self, node_type: NodeType, desired: int) -> LaunchResult:
        launched = 0
        for batch, first in enumerate(range(0, desired, MAX_BATCH)):
            result = self._launch_batch(node_type, batch, min(MAX_BATCH, desired - first))
            launched += result.count
            if result.code:
                return replace(result, count=launched)
        return LaunchResult(count=launched)

    def _launch_batch(self, node_type: NodeType, batch: int, requested: int) -> LaunchResult:
        """Repeat one launch until AWS reports its outcome."""
        group, deadline, is_printed = group_name(self.name, node_type), time.monotonic() + ANSWER_TIMEOUT_S, False
        while True:
            try:
                self.before_call()
                response: Any = self.clients.autoscaling.launch_instances(
                    AutoScalingGroupName=group,
                    RequestedCapacity=requested,
                    AvailabilityZones=[self.attempt.zone],
                    RetryStrategy="none",
                    ClientToken=self.attempt.client_token(node_type, batch),
                )
            except ClientError as error:
                problem = error.response["Error"].get("Code", "")
                if not problem.startswith(_OUTCOME_UNKNOWN):
                    raise
            except (HTTPClientError, NoConnectionError) as error:
                problem = type(error).__name__
            else:
                count = sum(len(instances.get("InstanceIds", [])) for instances in response.get("Instances", []))
                if refusals := response.get("Errors", []):
                    code, message = refusals[0].get("ErrorCode", NO_CODE), refusals[0].get("ErrorMessage", "")
                    return LaunchResult(count=count, code=code, message=message)
                if count >= requested:
                    return LaunchResult(count=count)
                problem = f"{count} of {requested} instances were launched, and EC2 gave no error"
            if time.monotonic() > deadline:
                raise LaunchOutcomeUnknownError(
                    f"waited {ANSWER_TIMEOUT_S:.0f} s for LaunchInstances of {group}: {problem}"
                )
            if not is_printed:
                print(f"dlcluster: waiting for LaunchInstances of {group}: {problem}", file=sys.stderr)
                is_printed = True
            time.sleep(RETRY_S)
