"""How a group's instances end: scaled in, unhealthy, lost, or with their group; and how they are replaced.

moto terminates at once and knows no lifecycle hooks. Here an instance that its group ends runs on in Terminating:Wait
until each terminating hook is completed or its heartbeat has timed out. Its replacement does not wait for that: "While
the instance is terminating, another scaling activity launches a new instance" ("View the reason for health check
failures", Amazon EC2 Auto Scaling User Guide). An instance that ended by itself waits for nothing.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from moto.autoscaling.exceptions import AutoscalingClientError, ValidationError
from moto.autoscaling.models import (
    AutoScalingBackend,
    FakeAutoScalingGroup,
    InstanceState,
    LifecycleHook,
    TerminateInstanceActivity,
    autoscaling_backends,
)
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.exceptions import ServiceException
from moto.ec2.models.instances import InstanceBackend

from local.aws.autoscaling import activities, scale_in, suspensions
from local.aws.patching import around
from local.aws.serial import LOCK

TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"
RETRY_S = 5.0
"""When a group tries again to launch what it could not."""


class ResourceInUseError(AutoscalingClientError):
    """Only force deletes a group that has instances."""

    # moto finds an exception's service by its module
    __module__ = "moto.autoscaling.exceptions"
    code = "ResourceInUse"
    message = (
        "You cannot delete an AutoScalingGroup while there are instances or pending Spot instance request(s) "
        "still in the group."
    )


@dataclass(kw_only=True, slots=True)
class _Ending:
    """A member in Terminating:Wait, and the timers of the hooks that it waits for, by name."""

    group: FakeAutoScalingGroup
    member: InstanceState
    timers: dict[str, threading.Timer] = field(default_factory=dict)


_ENDINGS: dict[str, _Ending] = {}
"""By instance id."""
_WHEN_EMPTY: dict[str, Callable[[], None]] = {}
"""By the name of a group that is being deleted."""


def install() -> None:
    """End and replace the members of groups here."""
    around(FakeAutoScalingGroup, "set_desired_capacity", _set_desired_capacity)
    around(AutoScalingBackend, "terminate_instance", _terminate_instance)
    around(AutoScalingBackend, "notify_terminate_instances", _lose)
    around(AutoScalingBackend, "resume_processes", _resume)
    around(AutoScalingResponse, "delete_auto_scaling_group", _delete_group)
    around(InstanceBackend, "stop_instances", _stop_instances)


def find_member(backend: AutoScalingBackend, instance_id: str) -> tuple[FakeAutoScalingGroup, InstanceState]:
    """The member that an instance is, and its group."""
    for group in backend.autoscaling_groups.values():
        for member in group.instance_states:
            if member.instance_id == instance_id:
                return group, member
    raise ValidationError(f"Instance Id not found - No managed instance found for instance ID: {instance_id}")


def replace(group: FakeAutoScalingGroup, member: InstanceState, cause: str) -> None:
    """End a member; the group launches another if its desired capacity asks for one."""
    _end(group, member, cause)
    _fill(group)


def mark_unhealthy(group: FakeAutoScalingGroup, member: InstanceState, cause: str) -> None:
    """A group replaces an unhealthy member; while that is suspended, the member stays as it is."""
    member.health_status = "Unhealthy"
    if suspensions.replaces_unhealthy(group):
        replace(group, member, cause)


def waiting_for(backend: AutoScalingBackend, group_name: str, hook_name: str) -> list[str]:
    """Ids of the instances that wait for a hook."""
    return [
        instance_id
        for instance_id, ending in _ENDINGS.items()
        if ending.group is backend.autoscaling_groups.get(group_name) and hook_name in ending.timers
    ]


def complete(instance_id: str, hook_name: str, result: str) -> None:
    """One hook is done; ABANDON stops the others too."""
    ending = _ENDINGS[instance_id]
    ending.timers.pop(hook_name).cancel()
    if result == "ABANDON" or not ending.timers:
        _proceed(ending)


def start_timer(backend: AutoScalingBackend, instance_id: str, hook_name: str) -> None:
    """Start the heartbeat's time, or start it anew."""
    ending = _ENDINGS[instance_id]
    hook: LifecycleHook = backend.lifecycle_hooks[f"{ending.group.name}_{hook_name}"]
    if hook_name in ending.timers:
        ending.timers[hook_name].cancel()

    def expired() -> None:
        with LOCK:
            # completed, or prolonged by a heartbeat, while this waited for the lock
            if _ENDINGS.get(instance_id) is ending and ending.timers.get(hook_name) is timer:
                complete(instance_id, hook_name, hook.default_result)

    timer = _timer(float(hook.heartbeat_timeout), expired)
    ending.timers[hook_name] = timer


def empty(group: FakeAutoScalingGroup, emptied: Callable[[], None]) -> None:
    """Scale a group to nothing, protected members too; ``emptied`` is called when the last one is gone."""
    group.desired_capacity = group.min_size = 0
    _WHEN_EMPTY[group.name] = emptied
    for member in group.active_instances():
        _end(group, member, "the deletion of the group")
    _tell_when_empty(group)


def _end(group: FakeAutoScalingGroup, member: InstanceState, cause: str) -> None:
    if member.lifecycle_state != "InService":
        return
    if member.instance.state == "terminated":
        # it stayed while replacing was suspended, and has nothing to wait for
        activities.finish_termination(group.name, member.instance_id)
        group.instance_states.remove(member)
        return
    backend: AutoScalingBackend = group.autoscaling_backend
    hooks = [h for h in backend.describe_lifecycle_hooks(group.name) if h.lifecycle_transition == TERMINATING]
    activities.begin_termination(group.name, member.instance_id, cause, waits=bool(hooks))
    if not hooks:
        _terminate(group, member)
        return
    member.lifecycle_state = "Terminating:Wait"
    _ENDINGS[member.instance_id] = _Ending(group=group, member=member)
    for hook in hooks:
        start_timer(backend, member.instance_id, hook.name)


def _proceed(ending: _Ending) -> None:
    _forget(ending.member)
    ending.member.lifecycle_state = "Terminating:Proceed"
    _terminate(ending.group, ending.member)
    _tell_when_empty(ending.group)


def _forget(member: InstanceState) -> None:
    if ending := _ENDINGS.pop(member.instance_id, None):
        for timer in ending.timers.values():
            timer.cancel()


def _terminate(group: FakeAutoScalingGroup, member: InstanceState) -> None:
    group.instance_states.remove(member)
    group.ec2_backend.terminate_instances([member.instance_id])


def _tell_when_empty(group: FakeAutoScalingGroup) -> None:
    if not group.instance_states and (emptied := _WHEN_EMPTY.pop(group.name, None)):
        emptied()


def _fill(group: FakeAutoScalingGroup) -> None:
    """Launch what the group lacks; what cannot be launched now is tried again, as long as the group is there."""
    groups = group.autoscaling_backend.autoscaling_groups
    if groups.get(group.name) is not group:
        return
    try:
        group.set_desired_capacity(group.desired_capacity)
    except ServiceException:
        # the scaling activities say why
        _timer(RETRY_S, lambda: _locked(_fill, group))


def _set_desired_capacity(original: Any, group: FakeAutoScalingGroup, new_capacity: int | None) -> None:
    """Those that leave already do not count, and moto would end them again."""
    wanted = (group.min_size if new_capacity is None else new_capacity) or 0
    active, order = group.active_instances(), scale_in.order(group)
    if len(active) <= wanted and suspensions.launches(group):
        original(group, new_capacity)
        return
    group.desired_capacity = wanted
    if not suspensions.terminates(group):
        return
    shrinks = f"a difference between desired and actual capacity, shrinking the capacity from {len(active)} to {wanted}"
    candidates = [m for m in order if m in active and not m.protected_from_scale_in]
    for member in candidates[: max(len(active) - wanted, 0)]:
        _end(group, member, shrinks)


def _terminate_instance(
    _original: Any, backend: AutoScalingBackend, instance_id: str, should_decrement: bool
) -> TerminateInstanceActivity:
    group, member = find_member(backend, instance_id)
    before = group.desired_capacity or 0
    if should_decrement and member.lifecycle_state == "InService":
        group.desired_capacity = before - 1
    replace(group, member, "a user request")
    return TerminateInstanceActivity(member.instance, before)


def _delete_group(original: Any, response: AutoScalingResponse) -> Any:
    """Force ends the members past all hooks; without it, a group must have none."""
    wanted, forced = response._get_param("AutoScalingGroupName"), response._get_bool_param("ForceDelete", False)
    for group in response.autoscaling_backend.describe_auto_scaling_groups([wanted]):
        if group.instance_states and not forced:
            raise ResourceInUseError
        for member in [*group.instance_states]:
            _forget(member)
            _terminate(group, member)
    return original(response)


def _lose(_original: Any, backend: AutoScalingBackend, instance_ids: list[str]) -> None:
    """Instances have ended without their groups: there is nothing left to wait for."""
    for group in [*backend.autoscaling_groups.values()]:
        lost = [member for member in group.instance_states if member.instance_id in instance_ids]
        for member in lost:
            _forget(member)
            if member.lifecycle_state == "InService" and not suspensions.replaces_unhealthy(group):
                member.health_status = "Unhealthy"
            else:
                group.instance_states.remove(member)
        if lost:
            _fill(group)
            _tell_when_empty(group)


def _resume(original: Any, backend: AutoScalingBackend, group_name: str, scaling_processes: list[str]) -> None:
    """What was left undone meanwhile is done."""
    original(backend, group_name, scaling_processes)
    group = backend.autoscaling_groups[group_name]
    if suspensions.replaces_unhealthy(group):
        for member in [m for m in group.active_instances() if m.health_status == "Unhealthy"]:
            _end(group, member, "a health check that found it unhealthy while replacing was suspended")
    _fill(group)


def _stop_instances(original: Any, backend: Any, instance_ids: list[str]) -> Any:
    """A group terminates and replaces a member that is stopped, also in its grace period."""
    stopped = original(backend, instance_ids)
    autoscaling = autoscaling_backends[backend.account_id][backend.region_name]
    replaced = []
    for group in autoscaling.autoscaling_groups.values():
        for member in [m for m in group.instance_states if m.instance_id in instance_ids]:
            if suspensions.replaces_unhealthy(group):
                replaced.append(member.instance_id)
            else:
                member.health_status = "Unhealthy"
    if replaced:
        backend.terminate_instances(replaced)
        autoscaling.notify_terminate_instances(replaced)
    return stopped


def _timer(seconds: float, act: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()
    return timer


def _locked(act: Callable[[FakeAutoScalingGroup], None], group: FakeAutoScalingGroup) -> None:
    with LOCK:
        act(group)
