"""Whether IAM policies allow a request: the part of IAM that the product's roles use, and nothing else.

Anything in a policy that is not understood here is an error, so that nothing is ignored silently. Rules:
"Policy evaluation logic", "IAM JSON policy elements: Condition operators" and "Variables and tags" in the IAM User
Guide, "Conditions with multiple context keys or values" for ForAllValues.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

USER_ID = "aws:userid"
CONDITION_KEYS = frozenset({"dynamodb:LeadingKeys", "aws:ResourceTag/aws:autoscaling:groupName"})
"""Keys that a condition may name. A misspelt one is never in a request, which ForAllValues takes for a yes."""
STATEMENT_KEYS = frozenset({"Sid", "Effect", "Action", "Resource", "Condition"})
VERSION = "2012-10-17"
"""The older version does not know policy variables."""

Test = Callable[[Sequence[str], Sequence[str]], bool]


class PolicyError(Exception):
    """A policy that says something that is not understood here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One permission that a caller needs, as IAM sees it; a call may need several."""

    action: str
    """With its service, as in ``s3:GetObject``."""
    resource: str
    """ARN, or ``*`` for an action that has no kind of resource."""
    user_id: str
    context: Mapping[str, Sequence[str]]
    """Values of condition keys."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """One key of one operator."""

    operator: str
    key: str
    values: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """One statement, with lists where the document has a single value."""

    allows: bool
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: tuple[Condition, ...]


def parse(document: Mapping[str, Any]) -> list[Statement]:
    """The statements of a policy; an error for whatever is not understood."""
    _only(document, {"Version", "Statement"}, "policy")
    if document.get("Version") != VERSION:
        raise PolicyError(f"version must be {VERSION}, got {document.get('Version')!r}")
    return [_statement(each) for each in _list(document["Statement"])]


def is_allowed(statements: Sequence[Statement], request: Request) -> bool:
    """An explicit Deny wins; without an Allow nothing is allowed."""
    matching = [statement for statement in statements if _matches(statement, request)]
    return bool(matching) and all(statement.allows for statement in matching)


def _statement(found: Mapping[str, Any]) -> Statement:
    _only(found, STATEMENT_KEYS, "statement")
    if found.get("Effect") not in ("Allow", "Deny"):
        raise PolicyError(f"effect must be Allow or Deny, got {found.get('Effect')!r}")
    resources = _texts(found, "Resource")
    for resource in resources:
        _check_variables(resource)
    return Statement(
        allows=found["Effect"] == "Allow",
        actions=_texts(found, "Action"),
        resources=resources,
        conditions=tuple(_conditions(found.get("Condition", {}))),
    )


def _conditions(found: Mapping[str, Mapping[str, Any]]) -> Iterator[Condition]:
    for operator, keys in found.items():
        if operator not in OPERATORS:
            raise PolicyError(f"condition operator must be one of {', '.join(OPERATORS)}, got {operator!r}")
        for key in keys:
            if key not in CONDITION_KEYS:
                raise PolicyError(f"condition key must be one of {', '.join(CONDITION_KEYS)}, got {key!r}")
            condition = Condition(operator=operator, key=key, values=_texts(keys, key))
            for value in condition.values:
                _check_variables(value)
            yield condition


def _check_variables(text: str) -> None:
    for name in re.findall(r"\$\{([^}]*)\}", text):
        if name != USER_ID:
            raise PolicyError(f"policy variable must be {USER_ID}, got {name!r}")


def _matches(statement: Statement, request: Request) -> bool:
    return (
        any(_like(pattern.lower(), request.action.lower()) for pattern in statement.actions)
        and any(_like(_filled(pattern, request), request.resource) for pattern in statement.resources)
        and all(_holds(condition, request) for condition in statement.conditions)
    )


def _holds(condition: Condition, request: Request) -> bool:
    wanted = [_filled(value, request) for value in condition.values]
    return OPERATORS[condition.operator](request.context.get(condition.key, ()), wanted)


def _filled(text: str, request: Request) -> str:
    return text.replace(f"${{{USER_ID}}}", request.user_id)


def _like(pattern: str, text: str) -> bool:
    """Policy wildcards: ``*`` is any characters, slashes too, ``?`` is one."""
    expression = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(expression, text, re.DOTALL) is not None


def _string_equals(found: Sequence[str], wanted: Sequence[str]) -> bool:
    return len(found) == 1 and found[0] in wanted


def _all_equal(found: Sequence[str], wanted: Sequence[str]) -> bool:
    """True, as IAM has it, for a request without the key."""
    return all(value in wanted for value in found)


OPERATORS: Mapping[str, Test] = {"StringEquals": _string_equals, "ForAllValues:StringEquals": _all_equal}


def _only(found: Mapping[str, Any], known: frozenset[str] | set[str], what: str) -> None:
    if unknown := found.keys() - known:
        raise PolicyError(f"{what} must have only {', '.join(sorted(known))}, got {', '.join(sorted(unknown))}")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _texts(found: Mapping[str, Any], name: str) -> tuple[str, ...]:
    values = _list(found.get(name, []))
    if not values or not all(isinstance(value, str) for value in values):
        raise PolicyError(f"{name} must be text or a list of it, got {found.get(name)!r}")
    return tuple(values)
