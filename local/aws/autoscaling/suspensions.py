"""Processes of a group that somebody has suspended; moto notes them and goes on.

"How suspended processes affect other processes", Amazon EC2 Auto Scaling User Guide.
"""

from moto.autoscaling.models import FakeAutoScalingGroup


def launches(group: FakeAutoScalingGroup) -> bool:
    """Whether the group adds instances."""
    return "Launch" not in _suspended(group)


def terminates(group: FakeAutoScalingGroup) -> bool:
    """Whether the group takes instances away to shrink."""
    return "Terminate" not in _suspended(group)


def replaces_unhealthy(group: FakeAutoScalingGroup) -> bool:
    """Whether the group ends and replaces instances that are unhealthy or gone: it terminates first, then launches."""
    return _suspended(group).isdisjoint({"ReplaceUnhealthy", "Terminate"})


def _suspended(group: FakeAutoScalingGroup) -> set[str]:
    return {process["ProcessName"] for process in group.suspended_processes}
