"""Answer calls about lifecycle hooks, and create the hooks that a group's template declares.

Only terminating hooks have an effect (see termination.py); launching hooks are only stored. EventBridge gets no events.
"""

from typing import Any

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import AutoScalingBackend, FakeAutoScalingGroup, autoscaling_backends
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import EmptyResult

from local.control_plane.autoscaling import termination
from local.control_plane.moto_patching import add, wrap

_Specification = dict[str, Any]
RESULTS = ("CONTINUE", "ABANDON")


def install() -> None:
    """Patch moto: create the hooks of templates, and answer the calls about lifecycle actions."""
    wrap(FakeAutoScalingGroup, "create_from_cloudformation_json", _create_group)
    wrap(AutoScalingBackend, "create_lifecycle_hook", _create_hook)
    wrap(AutoScalingBackend, "delete_lifecycle_hook", _delete_hook)
    wrap(AutoScalingBackend, "delete_auto_scaling_group", _delete_group)
    add(AutoScalingResponse, "complete_lifecycle_action", _complete)
    add(AutoScalingResponse, "record_lifecycle_action_heartbeat", _record_heartbeat)


def put(backend: AutoScalingBackend, group_name: str, specification: _Specification) -> None:
    """Create or change a hook from its properties in a template."""
    timeout = specification.get("HeartbeatTimeout")
    hook: Any = backend.create_lifecycle_hook(
        specification["LifecycleHookName"],
        group_name,
        specification["LifecycleTransition"],
        None if timeout is None else int(timeout),
        specification.get("DefaultResult", "ABANDON"),
    )
    hook.notification_target_arn = specification.get("NotificationTargetARN")
    hook.role_arn = specification.get("RoleARN")


def update(group: FakeAutoScalingGroup, old: list[_Specification], new: list[_Specification]) -> None:
    """Replace the hooks of a group's old template by those of its new one."""
    backend: AutoScalingBackend = group.autoscaling_backend
    new_names = {specification["LifecycleHookName"] for specification in new}
    for specification in old:
        if specification["LifecycleHookName"] not in new_names:
            backend.delete_lifecycle_hook(group.name, specification["LifecycleHookName"])
    for specification in new:
        put(backend, group.name, specification)


def _create_group(
    original: Any, name: str, definition: dict[str, Any], account: str, region: str, **kwargs: Any
) -> FakeAutoScalingGroup:
    group: FakeAutoScalingGroup = original(name, definition, account, region, **kwargs)
    for specification in definition["Properties"].get("LifecycleHookSpecificationList", []):
        put(autoscaling_backends[account][region], group.name, specification)
    return group


def _create_hook(
    original: Any, backend: AutoScalingBackend, name: str, as_name: str, transition: str, timeout: Any, result: Any
) -> Any:
    """Create a hook without the role and the target that moto invents."""
    hook = original(backend, name, as_name, transition, timeout, result)
    hook.role_arn = hook.notification_target_arn = None
    return hook


def _delete_hook(original: Any, backend: AutoScalingBackend, as_name: str, name: str) -> None:
    """Delete a hook; instances that wait for it continue."""
    for instance_id in termination.instances_waiting_for(backend, as_name, name):
        termination.complete_hook(instance_id, name, "CONTINUE")
    original(backend, as_name, name)


def _delete_group(original: Any, backend: AutoScalingBackend, group_name: str) -> None:
    """Delete a group and its hooks, so that a later group of the same name does not inherit them."""
    original(backend, group_name)
    for hook in backend.describe_lifecycle_hooks(group_name):
        del backend.lifecycle_hooks[f"{group_name}_{hook.name}"]


def _complete(response: AutoScalingResponse) -> EmptyResult:
    result = response._get_param("LifecycleActionResult")
    if result not in RESULTS:
        raise ValidationError(f"LifecycleActionResult must be one of {', '.join(RESULTS)}, got {result}")
    termination.complete_hook(*_action(response), result)
    return EmptyResult()


def _record_heartbeat(response: AutoScalingResponse) -> EmptyResult:
    termination.start_hook_timer(response.autoscaling_backend, *_action(response))
    return EmptyResult()


def _action(response: AutoScalingResponse) -> tuple[str, str]:
    """Return the instance and the hook of a request's lifecycle action; this server never hands out tokens."""
    hook, instance_id = response._get_param("LifecycleHookName"), response._get_param("InstanceId")
    group = response._get_param("AutoScalingGroupName")
    if instance_id in termination.instances_waiting_for(response.autoscaling_backend, group, hook):
        return instance_id, hook
    named = f"instance ID {instance_id}" if instance_id else f"token {response._get_param('LifecycleActionToken')}"
    raise ValidationError(f"No active Lifecycle Action found with {named}")
