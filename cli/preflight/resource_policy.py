"""Evaluate a resource's policy for one caller without IAM's simulator, which knows no anonymous caller."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

Statement = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """A user of the resource."""

    arn: str | None
    """ARN or service name; None for a caller without credentials, whom only the star matches."""
    keys: Mapping[str, str]
    """All condition keys of its requests, in lower case, with their values."""


def allows(policy: Mapping[str, Any], action: str, caller: Caller) -> bool:
    """Return True if the caller may perform the action: a statement allows it and none denies it."""
    effects = [
        statement["Effect"] for statement in _as_list(policy["Statement"]) if _applies(statement, action, caller)
    ]
    return "Allow" in effects and "Deny" not in effects


def denying(policy: Mapping[str, Any], action: str, caller: Caller) -> list[str]:
    """Return the names of the statements that deny the caller the action."""
    return [
        f"statement {statement.get('Sid') or number}"
        for number, statement in enumerate(_as_list(policy["Statement"]), start=1)
        if statement["Effect"] == "Deny" and _applies(statement, action, caller)
    ]


def _applies(statement: Statement, action: str, caller: Caller) -> bool:
    return _names_caller(statement, caller) and _names_action(statement, action) and all(_conditions(statement, caller))


def _names_caller(statement: Statement, caller: Caller) -> bool:
    if "NotPrincipal" in statement:
        return not _is_among(statement["NotPrincipal"], caller)
    return _is_among(statement.get("Principal", {}), caller)


def _is_among(principal: Any, caller: Caller) -> bool:
    kinds = principal if isinstance(principal, Mapping) else {"AWS": principal}
    named = [name for kind in ("AWS", "Service") for name in _as_list(kinds.get(kind, []))]
    return "*" in named or caller.arn in named


def _names_action(statement: Statement, action: str) -> bool:
    negated = "NotAction" in statement
    patterns = _as_list(statement["NotAction"] if negated else statement.get("Action", []))
    return any(fnmatchcase(action.lower(), pattern.lower()) for pattern in patterns) != negated


def _conditions(statement: Statement, caller: Caller) -> Iterator[bool]:
    for operator, keys in statement.get("Condition", {}).items():
        for key, wanted in keys.items():
            yield _holds(operator, caller.keys.get(key.lower()), [str(value).lower() for value in _as_list(wanted)])


def _holds(operator: str, found: str | None, values: list[str]) -> bool:
    """Evaluate a condition ("IAM JSON policy elements: Condition operators", IAM User Guide)."""
    negated = "Not" in operator
    if operator == "Null":
        return (found is None) == ("true" in values)
    if found is None:
        return negated or operator.endswith("IfExists") or operator.startswith("ForAllValues:")
    return any(fnmatchcase(found.lower(), value) for value in values) != negated


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
