"""Launch the nodes of an attempt by ``autoscaling:LaunchInstances``, which answers with the instances or EC2's reason.

AWS: "Launch instances synchronously" (Amazon EC2 Auto Scaling User Guide): at most 100 instances a call, and part of
them may come.
"""

import time
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import ClientError

from bootstrap.aws.group_sizes import ClusterSizes
from bootstrap.contract import MASTER, WORKER, NodeType, group_name
from cli.aws.clients import Clients
from cli.errors import ClusterError
from cli.up.attempt import Attempt

BATCH: Final = 100
BUSY_TIMEOUT_S: Final = 120.0
"""Seconds that a call gets whose earlier copy is still being answered."""
BUSY_PAUSE_S: Final = 5.0
_BUSY: Final = ("IdempotentCallInProgress", "ResourceContention")
NO_REASON: Final = "NoReason"
"""Our own code for instances that did not come without an error of EC2's."""
OF_THE_ZONE: Final = frozenset(
    (
        *("InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientCapacity", "UnfulfillableCapacity"),
        *("InsufficientReservedInstanceCapacity", "InsufficientCapacityOnHost", "InsufficientFreeAddressesInSubnet"),
        *("MaxSpotInstanceCountExceeded", "SpotMaxPriceTooLow", "Unsupported"),
        NO_REASON,
    )
)
"""Codes with which another zone, or a later try, may do better."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launched:
    """What EC2 gave of a group's nodes."""

    count: int
    code: str = ""
    """EC2's code if it did not give all."""
    message: str = ""

    @property
    def reason(self) -> str:
        """Return EC2's own reason on one line; empty if all nodes came."""
        return " ".join(f"{self.code}: {self.message}".split()) if self.code else ""


def launch_fleet(clients: Clients, name: str, attempt: Attempt, declared: ClusterSizes) -> dict[NodeType, Launched]:
    """Launch the workers, and the master once all workers came: the many are the scarce ones. Raises ClusterError."""
    came: dict[NodeType, Launched] = {}
    for node_type in (WORKER, MASTER):
        came[node_type] = _launch_group(clients, name, attempt, node_type, count=declared[node_type].desired)
        if came[node_type].code:
            break
    return came


def _launch_group(clients: Clients, name: str, attempt: Attempt, node_type: NodeType, *, count: int) -> Launched:
    came = 0
    for batch, first in enumerate(range(0, count, BATCH)):
        answer = _call(
            clients,
            AutoScalingGroupName=group_name(name, node_type),
            RequestedCapacity=min(BATCH, count - first),
            AvailabilityZones=[attempt.zone],
            RetryStrategy="none",
            ClientToken=attempt.client_token(node_type, batch),
        )
        came += sum(len(each.get("InstanceIds", [])) for each in answer.get("Instances", []))
        for error in answer.get("Errors", [])[:1]:
            return Launched(count=came, code=error.get("ErrorCode", NO_REASON), message=error.get("ErrorMessage", ""))
        if came < first + min(BATCH, count - first):
            return Launched(count=came, code=NO_REASON, message="fewer instances came than were asked for")
    return Launched(count=came)


def _call(clients: Clients, **request: Any) -> Any:
    """Send the request until its earlier copy has been answered."""
    end = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            return clients.autoscaling.launch_instances(**request)
        except ClientError as error:
            code = error.response["Error"].get("Code", "")
            if not code.startswith(_BUSY):
                raise
            if time.monotonic() > end:
                group = request["AutoScalingGroupName"]
                raise ClusterError(f"waited {BUSY_TIMEOUT_S:.0f} s for LaunchInstances of {group}: {code}") from error
        time.sleep(BUSY_PAUSE_S)
