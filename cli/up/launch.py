"""Launch the nodes of an attempt by ``autoscaling:LaunchInstances``, which answers with the instances or EC2's reason.

AWS: "Launch instances synchronously" (Amazon EC2 Auto Scaling User Guide): at most 100 instances a call, of which part
may come. A call that takes long may end without instances and without errors while EC2 goes on: the same token asks
again.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NoConnectionError

from bootstrap.aws.group_sizes import ClusterSizes
from bootstrap.contract import MASTER, WORKER, NodeType, group_name
from cli.aws.clients import Clients
from cli.errors import ClusterError
from cli.sizes.groups import GroupStates
from cli.up.attempt import BATCH, Attempt

ANSWER_TIMEOUT_S: Final = 300.0
"""Seconds for which a launch without an answer is asked for again."""
ANSWER_PAUSE_S: Final = 5.0
_UNANSWERED: Final = (
    *("IdempotentCallInProgress", "ResourceContention", "ScalingActivityInProgress", "Throttling"),
    *("RequestLimitExceeded", "InternalError", "InternalFailure", "ServiceUnavailable", "Unavailable"),
)
"""Beginnings of the codes that do not say whether the call launches anything."""
NO_CODE: Final = "NoCode"
"""Our own code for an error of EC2's that names none."""
OF_THE_ZONE: Final = frozenset(
    (
        *("InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientCapacity", "UnfulfillableCapacity"),
        *("InsufficientReservedInstanceCapacity", "InsufficientCapacityOnHost", "InsufficientFreeAddressesInSubnet"),
        *("MaxSpotInstanceCountExceeded", "SpotMaxPriceTooLow", "Unsupported", "ReservationCapacityExceeded"),
        *("RequestLimitExceeded", "InternalError", "ServiceUnavailable", "Unavailable"),
    )
)
"""Codes with which another zone, or a later try, may do better."""


class UnansweredError(ClusterError):
    """AWS did not say what became of a launch: its instances may still come."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launched:
    """The number of a group's nodes that EC2 launched, and its error if there are fewer than requested."""

    count: int
    code: str = ""
    """EC2's code if it did not give all."""
    message: str = ""

    @property
    def reason(self) -> str:
        """Return EC2's own reason on one line; empty if all nodes came."""
        return " ".join(f"{self.code}: {self.message}".split()) if self.code else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """Launch what the groups lack."""

    clients: Clients
    name: str
    attempt: Attempt
    declared: ClusterSizes
    before_call: Callable[[], None] = lambda: None
    """Raises an error if nothing may be launched any more."""

    def run(self, groups: GroupStates) -> dict[NodeType, Launched]:
        """Launch the workers, and the master once all workers came: the many are the scarce ones. Raises ClusterError.

        A group that has its nodes is left alone: AWS does not say for how long it knows a token.
        """
        came: dict[NodeType, Launched] = {}
        for node_type in (WORKER, MASTER):
            wanted, there = self.declared[node_type].desired, len(groups[node_type].instances)
            came[node_type] = Launched(count=there) if there >= wanted else self._group(node_type, wanted)
            if came[node_type].code:
                break
        return came

    def _group(self, node_type: NodeType, wanted: int) -> Launched:
        came = 0
        for batch, first in enumerate(range(0, wanted, BATCH)):
            count, code, message = self._batch(node_type, batch, min(BATCH, wanted - first))
            came += count
            if code:
                return Launched(count=came, code=code, message=message)
        return Launched(count=came)

    def _batch(self, node_type: NodeType, batch: int, wanted: int) -> tuple[int, str, str]:
        """Repeat one launch until AWS says what became of it; return the instances, and EC2's code and words."""
        group, end, is_printed = group_name(self.name, node_type), time.monotonic() + ANSWER_TIMEOUT_S, False
        while True:
            self.before_call()
            try:
                answer: Any = self.clients.autoscaling.launch_instances(
                    AutoScalingGroupName=group,
                    RequestedCapacity=wanted,
                    AvailabilityZones=[self.attempt.zone],
                    RetryStrategy="none",
                    ClientToken=self.attempt.client_token(node_type, batch),
                )
            except ClientError as error:
                missing = error.response["Error"].get("Code", "")
                if not missing.startswith(_UNANSWERED):
                    raise
            except (HTTPClientError, NoConnectionError) as error:
                missing = type(error).__name__
            else:
                count = sum(len(each.get("InstanceIds", [])) for each in answer.get("Instances", []))
                for refusal in answer.get("Errors", [])[:1]:
                    return count, refusal.get("ErrorCode", NO_CODE), refusal.get("ErrorMessage", "")
                if count >= wanted:
                    return count, "", ""
                missing = f"{count} of {wanted} instances came, and no error"
            if time.monotonic() > end:
                raise UnansweredError(f"waited {ANSWER_TIMEOUT_S:.0f} s for LaunchInstances of {group}: {missing}")
            if not is_printed:
                print(f"dlcluster: waiting for LaunchInstances of {group}: {missing}", file=sys.stderr)
                is_printed = True
            time.sleep(ANSWER_PAUSE_S)
