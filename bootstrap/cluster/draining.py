"""The last minutes of a node that has notice of its end: the others first stop counting on it."""

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
"""From the moment that the membership says we are away: every other node has looked by then, even one that has
just met an error."""
PATIENCE_S: Final = 45.0
"""From the notice: nobody may be left who could take us out of the lists."""
HEARTBEAT_S: Final = 10.0
"""How often the group hears that it should still wait: the hook itself is short, for nodes that cannot speak."""
TOO_LATE: Final = "No active Lifecycle Action"
"""Auto Scaling's words when nobody waits for us (any more)."""


class Draining:
    """What one node says to its Auto Scaling group about itself; no call names anybody else."""

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
        """Do what the notice asks for, once. ``membership`` is None while it could not be read."""
        if notice.at_risk and not notice.interrupted and not notice.ending:
            self.replace_me("spot recommends a replacement")
        if notice.ending and not self._let_go and self._others_know(membership):
            self._complete()

    def replace_me(self, why: str) -> None:
        """Ask the group for another instance in our place, whatever its own checks say."""
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
        """Let the group wait on: starts the hook's timeout anew, now and then."""
        now = self._monotonic()
        if self._let_go or now < self._next_heartbeat:
            return
        self._next_heartbeat = now + HEARTBEAT_S
        with self._unless_too_late():
            self._connect().record_lifecycle_action_heartbeat(
                AutoScalingGroupName=self._group, LifecycleHookName=DRAIN_HOOK, InstanceId=self._instance_id
            )

    def _complete(self) -> None:
        """Let the group go on: without our word it would wait for the hook's timeout."""
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
        """Nothing is left to be said to a group that has gone on."""
        try:
            yield
        except ClientError as error:
            if TOO_LATE not in error.response["Error"].get("Message", ""):
                raise
            self._let_go = True
