"""List what calls to EC2 Auto Scaling require: a permission on the named group or on the instance's group."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from moto.autoscaling.models import FakeAutoScalingGroup, autoscaling_backends

from local.control_plane.api_request import ApiRequest
from local.control_plane.authorization.callers import Caller
from local.policy_evaluation.policies import Permission

_TAGGED: Final = re.compile(r"Tags\.member\.[0-9]+\.ResourceId")
"""Matches the parameter with the name of a group whose tags a call changes."""


def _anything(request: ApiRequest, caller: Caller) -> Iterator[Permission]:
    yield caller.permission(request)


def _group(request: ApiRequest, caller: Caller) -> Iterator[Permission]:
    """Require the action on the group, with its tags.

    For an unknown group the ARN has stars, which no policy for one group matches unless the call named that group.
    """
    group = _find(request, caller)
    if group is None:
        name = request.parameters.get("AutoScalingGroupName", "*")
        yield caller.permission(request, caller.arn(request, f"autoScalingGroup:*:autoScalingGroupName/{name}"))
        return
    tags = {tag["Key"]: (tag["Value"],) for tag in group.tags}
    keys = ("aws:ResourceTag/", "autoscaling:ResourceTag/")
    context = {f"{key}{name}": value for key in keys for name, value in tags.items()}
    yield caller.permission(request, group.arn, context=context)


def _group_of_size(request: ApiRequest, caller: Caller) -> Iterator[Permission]:
    """Require the action on the group, with a condition key for each size that the call sets."""
    sizes = {
        f"autoscaling:{name}": (str(request.parameters[name]),)
        for name in ("MinSize", "MaxSize")
        if name in request.parameters
    }
    for permission in _group(request, caller):
        yield replace(permission, context={**permission.context, **sizes})


def _group_and_fleet(request: ApiRequest, caller: Caller) -> Iterator[Permission]:
    """Require the action on the group, and its effects in EC2.

    AWS: "Launching instances with synchronous provisioning" in the Amazon EC2 Auto Scaling User Guide.
    """
    yield from _group(request, caller)
    fleet = f"arn:{caller.partition}:ec2:{request.credential.region}:{caller.account}:fleet/*"
    yield replace(caller.permission(request, fleet), action="ec2:CreateFleet")
    yield replace(caller.permission(request), action="ec2:DescribeLaunchTemplateVersions")


def _tagged_groups(request: ApiRequest, caller: Caller) -> Iterator[Permission]:
    """Require the action on each group whose tags the call changes."""
    names = {value for key, value in request.parameters.items() if _TAGGED.fullmatch(key)}
    for name in sorted(names):
        yield caller.permission(request, caller.arn(request, f"autoScalingGroup:*:autoScalingGroupName/{name}"))


def _find(request: ApiRequest, caller: Caller) -> FakeAutoScalingGroup | None:
    """Return the named group, or the group of the named instance."""
    groups = autoscaling_backends[caller.account][request.credential.region].autoscaling_groups
    if "AutoScalingGroupName" in request.parameters:
        return groups.get(request.parameters["AutoScalingGroupName"])
    instance_id = request.parameters.get("InstanceId")
    for group in groups.values():
        if any(instance.instance_id == instance_id for instance in group.instance_states):
            return group
    return None


CALLS: Final[Mapping[str, Callable[[ApiRequest, Caller], Iterator[Permission]]]] = {
    "CompleteLifecycleAction": _group,
    "CreateOrUpdateTags": _tagged_groups,
    "DeleteAutoScalingGroup": _group,
    "DeleteTags": _tagged_groups,
    "DescribeAutoScalingGroups": _anything,
    "DescribeAutoScalingInstances": _anything,
    "DescribeScalingActivities": _anything,
    "DetachInstances": _group,
    "LaunchInstances": _group_and_fleet,
    "RecordLifecycleActionHeartbeat": _group,
    "ResumeProcesses": _group,
    "SetDesiredCapacity": _group,
    "SetInstanceHealth": _group,
    "SuspendProcesses": _group,
    "TerminateInstanceInAutoScalingGroup": _group,
    "UpdateAutoScalingGroup": _group_of_size,
}
