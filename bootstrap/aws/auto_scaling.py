"""Send this node's requests to its Auto Scaling group: delay or complete its termination, replace the node, pause."""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from botocore.exceptions import ClientError

from bootstrap.aws.group_sizes import PAUSED
from bootstrap.contract import DRAIN_HOOK, NODE_TYPES, group_name

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient

log = logging.getLogger(__name__)

NO_ACTIVE_ACTION: Final = "No active Lifecycle Action"
"""Part of Auto Scaling's error message about a lifecycle hook on which it no longer waits for this node."""


class GroupRequests:
    """Requests of one node; they are rare, so the first one creates the client with ``connect``."""

    def __init__(self, connect: "Callable[[], AutoScalingClient]", *, group: str, instance_id: str) -> None:
        self._connect = connect
        self._group = group
        self._instance_id = instance_id
        self._replacement_requested = False

    def request_replacement(self, reason: str) -> None:
        """Ask the group, once, to replace this node even if the group's own checks pass."""
        if self._replacement_requested:
            return
        self._connect().set_instance_health(
            InstanceId=self._instance_id, HealthStatus="Unhealthy", ShouldRespectGracePeriod=False
        )
        log.warning("asked %s to replace this node: %s", self._group, reason)
        self._replacement_requested = True

    def pause_cluster(self, cluster_name: str) -> None:
        """Set both groups to zero, the workers' first: the second call terminates this node."""
        for node_type in reversed(NODE_TYPES):
            self._connect().update_auto_scaling_group(**PAUSED.request(group_name(cluster_name, node_type)))

    def send_lifecycle_heartbeat(self) -> bool:
        """Restart the timeout of the termination's lifecycle hook; return False if the group no longer waits."""
        client = self._connect()
        return self._call_hook(lambda: client.record_lifecycle_action_heartbeat(**self._hook()))

    def complete_termination(self) -> None:
        """Complete the termination's lifecycle hook, so that the group need not wait for its timeout."""
        client = self._connect()
        self._call_hook(lambda: client.complete_lifecycle_action(**self._hook(), LifecycleActionResult="CONTINUE"))
        log.info("drained: %s may continue the termination", self._group)

    def _hook(self) -> Mapping[str, str]:
        return {
            "AutoScalingGroupName": self._group,
            "LifecycleHookName": DRAIN_HOOK,
            "InstanceId": self._instance_id,
        }

    def _call_hook(self, call: Callable[[], object]) -> bool:
        """Make a call about the lifecycle hook; return False if the group no longer waits for this node."""
        try:
            call()
        except ClientError as error:
            if NO_ACTIVE_ACTION not in error.response["Error"].get("Message", ""):
                raise
            return False
        return True
