"""Handle notices that this instance will be terminated, or may be soon.

The notices are a spot interruption, an Auto Scaling termination, and a rebalance recommendation. Spot gives two
minutes' notice of an interruption. EC2 may recommend a rebalance earlier, while the risk of an interruption is high.
The Auto Scaling group delays its own terminations with a lifecycle hook until the node has drained.

1. The agent reads the notice in each pass (`read_instance_metadata`).
2. On any notice, the node drains (`must_drain`): the agent marks the node's record, and the coordinator on the master
   removes the node from the hosts and workers files (coordinator.py). On the master, ``launch`` then restarts or ends
   the jobs that use the node (launcher/job/node_loss.py).
3. `TerminationHandler` asks the group for what the notice requires: a replacement for a node at risk; for a
   termination, a delay until the other nodes have dropped this one and its ranks have ended. An interruption cannot be
   delayed, and the group replaces the node without a request.
"""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from bootstrap.aws.auto_scaling import GroupRequests
from bootstrap.aws.imds import ADDRESS, TIMEOUT_S, read_categories
from bootstrap.cluster.membership import Membership

log = logging.getLogger(__name__)

MEMBERSHIP_PROPAGATION_S: Final = 20.0
"""Seconds for every other node to read the membership that drops this node, even if one read fails."""
DROP_TIMEOUT_S: Final = 45.0
"""Seconds after the notice until this node counts as dropped, even if no coordinator has dropped it."""
SIGTERM_DELIVERY_S: Final = 30.0
"""Seconds after the drop until every rank has received SIGTERM, even if its launcher has ended: a runner notices that
after its heartbeat timeout, 20 s."""
SPOT_NOTICE_S: Final = 120.0
"""Seconds from the notice of an interruption until EC2 terminates the instance."""
HEARTBEAT_S: Final = 10.0
"""Seconds between heartbeats to the lifecycle hook; its timeout is short because a broken node sends none."""
LIFECYCLE: Final = "autoscaling/target-lifecycle-state"
TERMINATED: Final = "Terminated"
"""Target lifecycle state of an instance that its group is about to terminate (Amazon EC2 Auto Scaling User Guide,
"Retrieve the target lifecycle state through instance metadata")."""
SPOT_INTERRUPTION: Final = "spot/instance-action"
REBALANCE: Final = "events/recommendations/rebalance"
PUBLIC_ADDRESS: Final = "public-ipv4"


@dataclass(frozen=True, kw_only=True, slots=True)
class TerminationNotice:
    """Notices in force for this instance."""

    is_terminating: bool = False
    """The Auto Scaling group holds the termination until this node completes the lifecycle hook."""
    is_interruption_pending: bool = False
    """Spot will interrupt the instance within two minutes."""
    is_rebalance_recommended: bool = False
    """EC2 recommends a rebalance: the risk of a spot interruption is high."""

    @property
    def must_drain(self) -> bool:
        """Return True if the other nodes should stop counting on this one."""
        return self.is_terminating or self.is_interruption_pending or self.is_rebalance_recommended


NO_NOTICE: Final = TerminationNotice()


@dataclass(frozen=True, kw_only=True, slots=True)
class InstanceMetadata:
    """The part of the instance's metadata that changes while the agent runs."""

    public_address: str | None = None
    notice: TerminationNotice = NO_NOTICE


def read_instance_metadata(host: str = ADDRESS, *, timeout_s: float = TIMEOUT_S) -> InstanceMetadata:
    """Read the address and the notice from the instance metadata, once. Raises MetadataError."""
    values = read_categories((PUBLIC_ADDRESS, LIFECYCLE, SPOT_INTERRUPTION, REBALANCE), host=host, timeout_s=timeout_s)
    notice = TerminationNotice(
        is_terminating=values[LIFECYCLE] == TERMINATED,
        is_interruption_pending=values[SPOT_INTERRUPTION] is not None,
        is_rebalance_recommended=values[REBALANCE] is not None,
    )
    return InstanceMetadata(public_address=values[PUBLIC_ADDRESS], notice=notice)


class TerminationState(Enum):
    """State of a termination by the group; the node sends heartbeats in the first three."""

    AWAITING_DROP = auto()
    """Wait until the membership omits this node, at most DROP_TIMEOUT_S."""
    AWAITING_READERS = auto()
    """Wait MEMBERSHIP_PROPAGATION_S, until every other node has read that membership."""
    AWAITING_RANKS = auto()
    """Wait until no rank runs here, at most SIGTERM_DELIVERY_S and the ranks' grace period after the drop. A spot
    interruption ends the wait after SPOT_NOTICE_S."""
    COMPLETING = auto()
    """Complete the lifecycle hook, in each pass until AWS accepts it."""
    COMPLETED = auto()
    """Do nothing more: AWS has accepted, or a heartbeat found that the hook no longer waits."""


FINAL_STATES: Final = (TerminationState.COMPLETING, TerminationState.COMPLETED)
"""States without heartbeats; the node never goes back from them to an earlier one."""


class TerminationHandler:
    """Sends the node's Auto Scaling group the requests that a notice requires."""

    def __init__(
        self,
        requests: GroupRequests,
        *,
        instance_id: str,
        monotonic: Callable[[], float],
        longest_grace_s: Callable[[], float],
    ) -> None:
        """`longest_grace_s` returns the longest grace period of the jobs with ranks on this node; 0 without ranks."""
        self._requests = requests
        self._instance_id = instance_id
        self._monotonic = monotonic
        self._longest_grace_s = longest_grace_s
        self._noticed_at = self._dropped_at = self._interrupted_at = math.inf
        self._next_heartbeat = 0.0
        self._has_logged_wait = False
        self._state = TerminationState.AWAITING_DROP

    def must_reconcile_now(self, notice: TerminationNotice, membership: Membership) -> bool:
        """Return True if a draining master must reconcile in this pass.

        Once the hosts and workers files omit it, only a termination by the group is urgent, for DROP_TIMEOUT_S: a node
        may wait for its ranks much longer, and each reconciliation calls AWS.
        """
        if notice.is_terminating and self._monotonic() - self._noticed_at < DROP_TIMEOUT_S:
            return True
        return notice.must_drain and membership.is_active(self._instance_id)

    def send_lifecycle_heartbeat(self) -> None:
        """Send the lifecycle hook a heartbeat, which restarts its timeout, unless the group may terminate the node."""
        now = self._monotonic()
        if self._state in FINAL_STATES or now < self._next_heartbeat:
            return
        self._next_heartbeat = now + HEARTBEAT_S
        if not self._requests.send_lifecycle_heartbeat():
            self._state = TerminationState.COMPLETED

    def respond(self, notice: TerminationNotice, membership: Membership | None) -> None:
        """Request a replacement or complete the termination; ``membership`` is None if it could not be read."""
        now = self._monotonic()
        if notice.is_interruption_pending:
            self._interrupted_at = min(self._interrupted_at, now)
        if notice.is_rebalance_recommended and not notice.is_interruption_pending and not notice.is_terminating:
            self._requests.request_replacement("EC2 rebalance recommendation: high risk of interruption")
        if not notice.is_terminating or self._state is TerminationState.COMPLETED:
            return
        self._noticed_at = min(self._noticed_at, now)
        if membership is not None and not membership.is_active(self._instance_id):
            self._dropped_at = min(self._dropped_at, now)
        if self._state is not TerminationState.COMPLETING:
            self._state = self._next_state(membership, now)
        if self._state is TerminationState.COMPLETING:
            self._requests.complete_termination()
            self._state = TerminationState.COMPLETED
        else:
            self.send_lifecycle_heartbeat()  # The pass may have taken a while.

    def _next_state(self, membership: Membership | None, now: float) -> TerminationState:
        """Return the state that the node is in now: what it still waits for, or COMPLETING."""
        if membership is None or membership.is_active(self._instance_id):
            dropped_at = self._noticed_at + DROP_TIMEOUT_S
            if now < dropped_at:
                return TerminationState.AWAITING_DROP
        else:
            dropped_at = self._dropped_at
            if membership.active_members and now - dropped_at < MEMBERSHIP_PROPAGATION_S:
                return TerminationState.AWAITING_READERS
        if not self._has_no_ranks_to_wait_for(dropped_at, now):
            return TerminationState.AWAITING_RANKS
        return TerminationState.COMPLETING

    def _has_no_ranks_to_wait_for(self, dropped_at: float, now: float) -> bool:
        """Return True if no rank runs here, or none has time left; otherwise log the wait, once."""
        grace_s = self._longest_grace_s()
        if not grace_s:
            return True
        deadline = min(dropped_at + SIGTERM_DELIVERY_S + grace_s, self._interrupted_at + SPOT_NOTICE_S)
        if now >= deadline:
            log.warning("completing the termination with ranks still running: their grace period has expired")
            return True
        if not self._has_logged_wait:
            log.info("waiting at most %.0f s for the ranks on this node to end", deadline - now)
            self._has_logged_wait = True
        return False
