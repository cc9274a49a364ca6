"""Drain a node that has a termination notice: it ends only after the others have dropped it from their lists.

What happens at a notice, a spot interruption included: `TerminationNotice.must_drain` (bootstrap/aws/imds.py) becomes
true, `Agent._publish` marks the node's record as draining, and `_candidates` on the master (coordinator.py) takes the
node out of the lists. This module does what differs between notices: it holds a termination by the group until the
others know, and asks for a replacement if EC2 recommends one. A spot interruption cannot be held.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from botocore.exceptions import ClientError

from bootstrap.aws.imds import TerminationNotice
from bootstrap.cluster.membership import Membership
from bootstrap.contract import DRAIN_HOOK

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient

log = logging.getLogger(__name__)

GRACE_S: Final = 20.0
"""Seconds from the membership that shows this node draining: time for every other node to read it, despite an error."""
LONGEST_DRAIN_S: Final = 45.0
"""Seconds from the notice after which the node ends anyway: there may be no coordinator left to drop it."""
HEARTBEAT_S: Final = 10.0
"""Seconds between heartbeats to the lifecycle hook; its timeout is short because a broken node sends none."""
TOO_LATE: Final = "No active Lifecycle Action"
"""Auto Scaling's answer when it no longer waits for this node."""


class Draining:
    """Tell this node's Auto Scaling group when to wait for the node, terminate it or replace it."""

    def __init__(
        self,
        connect: "Callable[[], AutoScalingClient]",
        *,
        group: str,
        instance_id: str,
        monotonic: Callable[[], float],
    ) -> None:
        self._connect = connect
        self._group = group
        self._instance_id = instance_id
        self._monotonic = monotonic
        self._noticed_at: float | None = None
        self._draining_since: float | None = None
        self._next_heartbeat = 0.0
        self._completed = False
        self._unhealthy = False

    def is_urgent(self, notice: TerminationNotice, membership: Membership) -> bool:
        """Return whether a draining master must reconcile in this pass.

        Once the lists have dropped it, only a termination by the group is urgent.
        """
        return notice.ending or (notice.must_drain and membership.lists(self._instance_id))

    def follow(self, notice: TerminationNotice, membership: Membership | None) -> None:
        """Act on the notice, once; ``membership`` is None if it could not be read."""
        if notice.at_risk and not notice.interrupted and not notice.ending:
            self.replace_me("spot recommends a replacement")
        if notice.ending and not self._completed and self._others_know(membership):
            self._complete()

    def replace_me(self, why: str) -> None:
        """Ask the group to replace this node, even if the group's own checks pass."""
        if self._unhealthy:
            return
        self._connect().set_instance_health(
            InstanceId=self._instance_id, HealthStatus="Unhealthy", ShouldRespectGracePeriod=False
        )
        log.warning("asked %s to replace this node: %s", self._group, why)
        self._unhealthy = True

    def _others_know(self, membership: Membership | None) -> bool:
        """Return whether every other node has dropped this one, or has had the time to."""
        now = self._monotonic()
        noticed_at = self._noticed_at = now if self._noticed_at is None else self._noticed_at
        if membership is None or membership.lists(self._instance_id):
            return now - noticed_at >= LONGEST_DRAIN_S
        draining_since = self._draining_since = now if self._draining_since is None else self._draining_since
        return not membership.present or now - draining_since >= GRACE_S

    def hold(self) -> None:
        """Send the hook a heartbeat, which restarts its timeout."""
        now = self._monotonic()
        if self._completed or now < self._next_heartbeat:
            return
        self._next_heartbeat = now + HEARTBEAT_S
        with self._unless_too_late():
            self._connect().record_lifecycle_action_heartbeat(
                AutoScalingGroupName=self._group, LifecycleHookName=DRAIN_HOOK, InstanceId=self._instance_id
            )

    def _complete(self) -> None:
        """Complete the lifecycle hook, so that the group need not wait for its timeout."""
        with self._unless_too_late():
            self._connect().complete_lifecycle_action(
                AutoScalingGroupName=self._group,
                LifecycleHookName=DRAIN_HOOK,
                InstanceId=self._instance_id,
                LifecycleActionResult="CONTINUE",
            )
        log.info("drained: told %s to go on with the termination", self._group)
        self._completed = True

    @contextmanager
    def _unless_too_late(self) -> Iterator[None]:
        """Accept that the group no longer waits."""
        try:
            yield
        except ClientError as error:
            if TOO_LATE not in error.response["Error"].get("Message", ""):
                raise
            self._completed = True
