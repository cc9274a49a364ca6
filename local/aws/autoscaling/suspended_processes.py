"""Tell which processes of a group are suspended: moto stores suspensions but ignores them.

AWS: "How suspended processes affect other processes", Amazon EC2 Auto Scaling User Guide.
"""

from moto.autoscaling.models import FakeAutoScalingGroup


def launches(group: FakeAutoScalingGroup) -> bool:
    """Return whether the group adds instances."""
    return "Launch" not in _suspended(group)


def terminates(group: FakeAutoScalingGroup) -> bool:
    """Return whether the group removes instances to shrink."""
    return "Terminate" not in _suspended(group)


def replaces_unhealthy(group: FakeAutoScalingGroup) -> bool:
    """Return whether the group replaces unhealthy and lost instances: it terminates first, then launches."""
    return _suspended(group).isdisjoint({"ReplaceUnhealthy", "Terminate"})


def _suspended(group: FakeAutoScalingGroup) -> set[str]:
    return {process["ProcessName"] for process in group.suspended_processes}
