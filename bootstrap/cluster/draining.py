"""Drain a node that has a termination notice: it ends only after the others have stopped counting on it."""

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
"""From the moment that the membership says we drain: by then every other node has looked, even after an error."""
PATIENCE_S: Final = 45.0
"""From the notice: no coordinator may be left to take this node out of the lists."""
HEARTBEAT_S: Final = 10.0
"""Seconds between heartbeats to the lifecycle hook, which is short because a broken node sends none."""
TOO_LATE: Final = "No active Lifecycle Action"
"""Auto Scaling's answer when it no longer waits for this node."""


class Draining:
    """The calls of one node to its Auto Scaling group, all about itself."""

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
        self._told_at: float | None = None
        self._draining_since: float | None = None
        self._next_heartbeat = 0.0
        self._let_go = False
        self._unhealthy = False

    def follow(self, notice: TerminationNotice, membership: Membership | None) -> None:
        """Act on the notice, once. ``membership`` is None while it could not be read."""
        if notice.at_risk and not notice.interrupted and not notice.ending:
            self.replace_me("spot recommends a replacement")
        if notice.ending and not self._let_go and self._others_know(membership):
            self._complete()

    def replace_me(self, why: str) -> None:
        """Ask the group to replace this node, whatever the group's own checks say."""
        if self._unhealthy:
            return
        self._connect().set_instance_health(
            InstanceId=self._instance_id, HealthStatus="Unhealthy", ShouldRespectGracePeriod=False
        )
        log.warning("asked %s to replace this node: %s", self._group, why)
        self._unhealthy = True

    def _others_know(self, membership: Membership | None) -> bool:
        now = self._monotonic()
        told_at = self._told_at = now if self._told_at is None else self._told_at
        if membership is None or membership.lists(self._instance_id):
            return now - told_at >= PATIENCE_S
        draining_since = self._draining_since = now if self._draining_since is None else self._draining_since
        return not membership.present or now - draining_since >= GRACE_S

    def hold(self) -> None:
        """Send the hook a heartbeat, which restarts its timeout."""
        now = self._monotonic()
        if self._let_go or now < self._next_heartbeat:
            return
        self._next_heartbeat = now + HEARTBEAT_S
        with self._unless_too_late():
            self._connect().record_lifecycle_action_heartbeat(
                AutoScalingGroupName=self._group, LifecycleHookName=DRAIN_HOOK, InstanceId=self._instance_id
            )

    def _complete(self) -> None:
        """Complete the hook, so that the group does not wait for its timeout."""
        with self._unless_too_late():
            self._connect().complete_lifecycle_action(
                AutoScalingGroupName=self._group,
                LifecycleHookName=DRAIN_HOOK,
                InstanceId=self._instance_id,
                LifecycleActionResult="CONTINUE",
            )
        log.info("told %s that it need not wait for us", self._group)
        self._let_go = True

    @contextmanager
    def _unless_too_late(self) -> Iterator[None]:
        """Accept that the group no longer waits."""
        try:
            yield
        except ClientError as error:
            if TOO_LATE not in error.response["Error"].get("Message", ""):
                raise
            self._let_go = True
