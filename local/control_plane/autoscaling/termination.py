"""Terminate a group's instances when it scales in, loses them or is deleted, and replace them.

moto ignores lifecycle hooks. Here an instance stays in Terminating:Wait until each hook is completed or has timed out.
Its replacement does not wait for that: "While the instance is terminating, another scaling activity launches a new
instance" ("View the reason for health check failures", Amazon EC2 Auto Scaling User Guide). Hooks do not delay an
instance that ended without its group's action.
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
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instances import InstanceBackend

from local.control_plane.autoscaling import activities, suspended_processes, termination_policies
from local.control_plane.limits.capacity import SHORTAGES
from local.control_plane.moto_patching import wrap
from local.control_plane.request_lock import LOCK

TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"
RETRY_S = 5.0
"""Seconds after which a group retries a failed launch."""


class ResourceInUseError(AutoscalingClientError):
    """A group that has instances cannot be deleted without ForceDelete."""

    # moto derives an exception's service from its module.
    __module__ = "moto.autoscaling.exceptions"
    code = "ResourceInUse"
    message = (
        "You cannot delete an AutoScalingGroup while there are instances or pending Spot instance request(s) "
        "still in the group."
    )


@dataclass(kw_only=True, slots=True)
class _Termination:
    """An instance in Terminating:Wait, and the timer of each pending hook by name."""

    group: FakeAutoScalingGroup
    instance: InstanceState
    timers: dict[str, threading.Timer] = field(default_factory=dict)


_TERMINATIONS: dict[str, _Termination] = {}
"""Members in Terminating:Wait by instance ID."""
_WHEN_EMPTY: dict[str, Callable[[], None]] = {}
"""Callbacks by the name of a group that is being deleted."""
_RETRYING: set[FakeAutoScalingGroup] = set()
"""Groups whose launches failed, until their next attempt."""


def install() -> None:
    """Patch moto: end and replace the instances of groups with the functions below."""
    wrap(FakeAutoScalingGroup, "set_desired_capacity", _set_desired_capacity)
    wrap(AutoScalingBackend, "terminate_instance", _terminate_instance)
    wrap(AutoScalingBackend, "notify_terminate_instances", _remove_lost)
    wrap(AutoScalingBackend, "resume_processes", _resume)
    wrap(AutoScalingResponse, "delete_auto_scaling_group", _delete_group)
    wrap(InstanceBackend, "stop_instances", _stop_instances)


def find_instance(backend: AutoScalingBackend, instance_id: str) -> tuple[FakeAutoScalingGroup, InstanceState]:
    """Return an instance of an Auto Scaling group by its ID, and the group. Raises ValidationError."""
    for group in backend.autoscaling_groups.values():
        for instance in group.instance_states:
            if instance.instance_id == instance_id:
                return group, instance
    raise ValidationError(f"Instance Id not found - No managed instance found for instance ID: {instance_id}")


def replace(group: FakeAutoScalingGroup, instance: InstanceState, cause: str) -> None:
    """Terminate an instance; the group launches another if its desired capacity requires one."""
    _begin_termination(group, instance, cause)
    _launch_missing(group)


def mark_unhealthy(group: FakeAutoScalingGroup, instance: InstanceState, cause: str) -> None:
    """Mark an instance unhealthy and replace it, unless the group's replacing is suspended."""
    instance.health_status = "Unhealthy"
    if suspended_processes.may_replace_unhealthy(group):
        replace(group, instance, cause)


def instances_waiting_for(backend: AutoScalingBackend, group_name: str, hook_name: str) -> list[str]:
    """Return the IDs of the instances that wait for a hook."""
    group = backend.autoscaling_groups.get(group_name)
    waiting = [termination for termination in _TERMINATIONS.values() if termination.group is group]
    return [termination.instance.instance_id for termination in waiting if hook_name in termination.timers]


def complete_hook(instance_id: str, hook_name: str, result: str) -> None:
    """Complete one hook of an instance; ABANDON also cancels the others."""
    termination = _TERMINATIONS[instance_id]
    termination.timers.pop(hook_name).cancel()
    if result == "ABANDON" or not termination.timers:
        _proceed(termination)


def start_hook_timer(backend: AutoScalingBackend, instance_id: str, hook_name: str) -> None:
    """Start the heartbeat timer of a hook, or restart it."""
    termination = _TERMINATIONS[instance_id]
    hook: LifecycleHook = backend.lifecycle_hooks[f"{termination.group.name}_{hook_name}"]
    if hook_name in termination.timers:
        termination.timers[hook_name].cancel()

    def expired() -> None:
        with LOCK:
            # While this waited for the lock, the hook may have been completed or its timer restarted.
            if _TERMINATIONS.get(instance_id) is termination and termination.timers.get(hook_name) is timer:
                complete_hook(instance_id, hook_name, hook.default_result)

    timer = _start_daemon_timer(float(hook.heartbeat_timeout), expired)
    termination.timers[hook_name] = timer


def scale_to_zero(group: FakeAutoScalingGroup, when_empty: Callable[[], None]) -> None:
    """Scale a group to zero, including protected instances; call ``when_empty`` when the last one is gone."""
    group.desired_capacity = group.min_size = 0
    _WHEN_EMPTY[group.name] = when_empty
    for instance in group.active_instances():
        _begin_termination(group, instance, "the deletion of the group")
    _call_when_empty(group)


def _begin_termination(group: FakeAutoScalingGroup, instance: InstanceState, cause: str) -> None:
    if instance.lifecycle_state not in ("InService", "Standby"):
        return
    if instance.instance.state == "terminated":
        # The instance stayed while replacing was suspended, and hooks no longer apply.
        activities.finish_termination(group.name, instance.instance_id)
        group.instance_states.remove(instance)
        return
    backend: AutoScalingBackend = group.autoscaling_backend
    all_hooks = backend.describe_lifecycle_hooks(group.name)
    hooks = [hook for hook in all_hooks if hook.lifecycle_transition == TERMINATING]
    activities.begin_termination(group.name, instance.instance_id, cause, waits=bool(hooks))
    if not hooks:
        _terminate_now(group, instance)
        return
    instance.lifecycle_state = "Terminating:Wait"
    _TERMINATIONS[instance.instance_id] = _Termination(group=group, instance=instance)
    for hook in hooks:
        start_hook_timer(backend, instance.instance_id, hook.name)


def _proceed(termination: _Termination) -> None:
    _forget_termination(termination.instance)
    termination.instance.lifecycle_state = "Terminating:Proceed"
    _terminate_now(termination.group, termination.instance)
    _call_when_empty(termination.group)


def _forget_termination(instance: InstanceState) -> None:
    if termination := _TERMINATIONS.pop(instance.instance_id, None):
        for timer in termination.timers.values():
            timer.cancel()


def _terminate_now(group: FakeAutoScalingGroup, instance: InstanceState) -> None:
    group.instance_states.remove(instance)
    group.ec2_backend.terminate_instances([instance.instance_id])


def _call_when_empty(group: FakeAutoScalingGroup) -> None:
    if not group.instance_states and (when_empty := _WHEN_EMPTY.pop(group.name, None)):
        when_empty()


def _launch_missing(group: FakeAutoScalingGroup) -> None:
    """Launch the missing instances; retry failed launches as long as the group exists."""
    if group.autoscaling_backend.autoscaling_groups.get(group.name) is not group:
        return
    try:
        group.set_desired_capacity(group.desired_capacity)
    except ServiceException:
        # The scaling activities show the reason.
        retry_launches(group)


def retry_launches(group: FakeAutoScalingGroup) -> None:
    """Launch the missing instances later."""
    if group in _RETRYING:
        return
    _RETRYING.add(group)

    def retry() -> None:
        with LOCK:
            _RETRYING.discard(group)
            _launch_missing(group)

    _start_daemon_timer(RETRY_S, retry)


def _set_desired_capacity(original: Any, group: FakeAutoScalingGroup, new_capacity: int | None) -> None:
    """Resize without counting instances that are already terminating, which moto would end again."""
    desired = (group.min_size if new_capacity is None else new_capacity) or 0
    active, order = group.active_instances(), termination_policies.order(group)
    if len(active) <= desired and suspended_processes.may_launch(group):
        try:
            original(group, new_capacity)
        except EC2ClientError as error:
            if error.code not in SHORTAGES:
                raise
            retry_launches(group)
        return
    group.desired_capacity = desired
    if not suspended_processes.may_terminate(group):
        return
    change = f"shrinking the capacity from {len(active)} to {desired}"
    candidates = [instance for instance in order if instance in active and not instance.protected_from_scale_in]
    for instance in candidates[: max(len(active) - desired, 0)]:
        _begin_termination(group, instance, f"a difference between desired and actual capacity, {change}")


def _terminate_instance(
    _original: Any, backend: AutoScalingBackend, instance_id: str, should_decrement: bool
) -> TerminateInstanceActivity:
    group, instance = find_instance(backend, instance_id)
    before = group.desired_capacity or 0
    if should_decrement and instance.lifecycle_state == "InService":
        group.desired_capacity = before - 1
    replace(group, instance, "a user request")
    return TerminateInstanceActivity(instance.instance, before)


def _delete_group(original: Any, response: AutoScalingResponse) -> Any:
    """Delete a group. ForceDelete ends its instances without waiting for hooks; otherwise it must have none."""
    name, forced = response._get_param("AutoScalingGroupName"), response._get_bool_param("ForceDelete", False)
    for group in response.autoscaling_backend.describe_auto_scaling_groups([name]):
        if group.instance_states and not forced:
            raise ResourceInUseError
        for instance in [*group.instance_states]:
            _forget_termination(instance)
            _terminate_now(group, instance)
    return original(response)


def _remove_lost(_original: Any, backend: AutoScalingBackend, instance_ids: list[str]) -> None:
    """Remove instances that EC2 has already terminated: no hook can delay them any more."""
    for group in [*backend.autoscaling_groups.values()]:
        lost = [instance for instance in group.instance_states if instance.instance_id in instance_ids]
        for instance in lost:
            _forget_termination(instance)
            if instance.lifecycle_state == "InService" and not suspended_processes.may_replace_unhealthy(group):
                instance.health_status = "Unhealthy"
            else:
                group.instance_states.remove(instance)
        if lost:
            _launch_missing(group)
            _call_when_empty(group)


def _resume(original: Any, backend: AutoScalingBackend, group_name: str, scaling_processes: list[str]) -> None:
    """Resume processes and catch up on what was left undone in the meantime."""
    original(backend, group_name, scaling_processes)
    group = backend.autoscaling_groups[group_name]
    if suspended_processes.may_replace_unhealthy(group):
        unhealthy = [instance for instance in group.active_instances() if instance.health_status == "Unhealthy"]
        for instance in unhealthy:
            _begin_termination(group, instance, "a health check that found it unhealthy while replacing was suspended")
    _launch_missing(group)


def _stop_instances(original: Any, backend: Any, instance_ids: list[str]) -> Any:
    """Stop instances; a group terminates and replaces a stopped instance even in its grace period."""
    stopped = original(backend, instance_ids)
    autoscaling = autoscaling_backends[backend.account_id][backend.region_name]
    replaced = []
    for group in autoscaling.autoscaling_groups.values():
        for instance in [member for member in group.instance_states if member.instance_id in instance_ids]:
            if suspended_processes.may_replace_unhealthy(group):
                replaced.append(instance.instance_id)
            else:
                instance.health_status = "Unhealthy"
    if replaced:
        backend.terminate_instances(replaced)
        autoscaling.notify_terminate_instances(replaced)
    return stopped


def _start_daemon_timer(seconds: float, act: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()
    return timer
