"""Check a template's rules, which are assertions about its parameters, before changing anything.

moto ignores that section. It also forgets a parameter's default when an update requests the previous value.
"""

from collections.abc import Callable
from typing import Any

from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import CloudFormationBackend, Stack
from moto.cloudformation.parsing import ResourceMap

from local.control_plane.cloudformation.stack_updates import require_settled
from local.control_plane.moto_patching import wrap

_Template = dict[str, Any]
_Values = dict[str, Any]


def install() -> None:
    """Patch moto: check the rules on every call with a template."""
    wrap(CloudFormationBackend, "_resolve_update_parameters", _with_previous_values)
    # Install it outside the wrapper of stacks, so that a refused template creates no stack.
    wrap(CloudFormationBackend, "create_stack", _create_stack)
    wrap(CloudFormationBackend, "update_stack", _update_stack)
    wrap(CloudFormationBackend, "create_change_set", _create_change_set)


def failure(template: _Template, values: _Values) -> str | None:
    """Return the description of the first assertion that does not hold."""
    for name, rule in template.get("Rules", {}).items():
        if "RuleCondition" in rule and not _holds(rule["RuleCondition"], values):
            continue
        for assertion in rule["Assertions"]:
            if not _holds(assertion["Assert"], values):
                return str(assertion.get("AssertDescription", f"an assertion of rule {name} does not hold"))
    return None


def _holds(expression: Any, values: _Values) -> bool:
    """Evaluate a rule function (CloudFormation User Guide, "Rule-specific intrinsic functions")."""
    [(function, arguments)] = expression.items()
    if function not in _FUNCTIONS:
        raise ValidationError(message=f"the local AWS does not know the rule function {function}")
    return _FUNCTIONS[function]([_value(argument, values) for argument in arguments])


def _value(argument: Any, values: _Values) -> Any:
    if isinstance(argument, list):
        return [_value(item, values) for item in argument]
    if not isinstance(argument, dict):
        return str(argument)
    return values[argument["Ref"]] if "Ref" in argument else _holds(argument, values)


_FUNCTIONS: dict[str, Callable[[list[Any]], bool]] = {
    "Fn::And": all,
    "Fn::Or": any,
    "Fn::Not": lambda arguments: not arguments[0],
    "Fn::Equals": lambda arguments: bool(arguments[0] == arguments[1]),
    "Fn::Contains": lambda arguments: arguments[1] in arguments[0],
    "Fn::EachMemberEquals": lambda arguments: all(item == arguments[1] for item in arguments[0]),
    "Fn::EachMemberIn": lambda arguments: all(item in arguments[1] for item in arguments[0]),
}


def _check(backend: CloudFormationBackend, name: str, template: str, parameters: dict[str, str]) -> None:
    parsed = Stack.parse_template(template)
    if "Rules" in parsed and (reason := failure(parsed, _values(backend, name, parsed, parameters))):
        raise ValidationError(message=reason)


def _values(backend: CloudFormationBackend, name: str, template: _Template, parameters: dict[str, str]) -> _Values:
    """Return the pseudo parameters and the parameters as resources see them, with SSM's resolved."""
    unused: Any = {}
    region_and_account = {"region_name": backend.region_name, "account_id": backend.account_id}
    resolved = ResourceMap(
        "", name, parameters, {}, template=template, cross_stack_resources=unused, **region_and_account
    )
    resolved.load_parameters()
    return {**resolved._parsed_resources, **resolved.resolved_parameters}


def _with_previous_values(
    original: Any, backend: CloudFormationBackend, instance: Any, incoming_params: list[dict[str, Any]]
) -> Any:
    previous = getattr(instance, "stack_parameters", {})
    explicit = [
        {"ParameterKey": parameter["ParameterKey"], "ParameterValue": previous[parameter["ParameterKey"]]}
        if parameter.get("UsePreviousValue") and parameter["ParameterKey"] in previous
        else parameter
        for parameter in incoming_params
    ]
    return original(backend, instance, explicit)


def _create_stack(original: Any, backend: CloudFormationBackend, **arguments: Any) -> Stack:
    _check(backend, arguments["name"], arguments["template"], arguments["parameters"])
    stack: Stack = original(backend, **arguments)
    return stack


def _update_stack(original: Any, backend: CloudFormationBackend, **arguments: Any) -> Stack:
    stack = backend.get_stack(arguments["name"])
    parameters = backend._resolve_update_parameters(stack, arguments["parameters"])
    _check(backend, stack.name, arguments["template"], parameters)
    updated: Stack = original(backend, **arguments)
    return updated


def _create_change_set(original: Any, backend: CloudFormationBackend, **arguments: Any) -> tuple[str, str]:
    if arguments["change_set_type"] == "UPDATE":
        require_settled(backend.get_stack(arguments["stack_name"]))
    _check(backend, arguments["stack_name"], arguments["template"], arguments["parameters"])
    ids: tuple[str, str] = original(backend, **arguments)
    return ids
