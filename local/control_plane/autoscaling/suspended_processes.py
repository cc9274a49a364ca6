"""Tell which processes of a group are suspended: moto stores suspensions but ignores them.

AWS: "How suspended processes affect other processes", Amazon EC2 Auto Scaling User Guide.
"""

from moto.autoscaling.models import FakeAutoScalingGroup


def may_launch(group: FakeAutoScalingGroup) -> bool:
    """Return True if the group may add instances."""
    return "Launch" not in _suspended(group)


def may_terminate(group: FakeAutoScalingGroup) -> bool:
    """Return True if the group may remove instances to shrink."""
    return "Terminate" not in _suspended(group)


def may_replace_unhealthy(group: FakeAutoScalingGroup) -> bool:
    """Return True if the group may replace unhealthy and lost instances: it terminates first, then launches."""
    return _suspended(group).isdisjoint({"ReplaceUnhealthy", "Terminate"})


def _suspended(group: FakeAutoScalingGroup) -> set[str]:
    return {process["ProcessName"] for process in group.suspended_processes}
