"""Decide whether IAM policies allow what a call needs.

Anything unknown in a policy is an error, so that nothing is silently ignored. AWS: "Policy evaluation logic" and "IAM
policy elements: Variables and tags" in the IAM User Guide.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from local.policy_evaluation.conditions import PolicyError, expression, operator

USER_ID: Final = "aws:userid"
PRINCIPAL: Final = "aws:PrincipalArn"
LEADING_KEYS: Final = "dynamodb:LeadingKeys"
DOCUMENT_CHECK: Final = "ssm:SessionDocumentAccessCheck"
RESOURCE_TAGS: Final = ("aws:ResourceTag/", "autoscaling:ResourceTag/", "ec2:ResourceTag/", "ssm:resourceTag/")
CONDITION_KEYS: Final = frozenset({
    USER_ID, PRINCIPAL, LEADING_KEYS, "aws:username", "aws:PrincipalAccount", "aws:RequestedRegion",
    "aws:SecureTransport", "aws:SourceIp", "autoscaling:MaxSize", "autoscaling:MinSize",
    "elasticfilesystem:AccessPointArn", "elasticfilesystem:AccessedViaMountTarget", "iam:PassedToService",
    "kms:ViaService", "s3:delimiter", "s3:max-keys", "s3:prefix", DOCUMENT_CHECK,
})  # fmt: skip
"""Keys that a condition may name, besides those of tags. A misspelled key is never in a request, so that ForAllValues
and negated operators would be true."""
VARIABLES: Final = frozenset({USER_ID, "aws:username", "aws:PrincipalAccount"})
VERSION: Final = "2012-10-17"
"""Version of the policy language; the older one has no policy variables."""

_STATEMENT_KEYS: Final = frozenset({"Sid", "Effect", "Action", "NotAction", "Resource", "NotResource", "Condition"})
_VARIABLE: Final = re.compile(r"\$\{([^}]*)\}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Permission:
    """One permission that a call requires; a call may require several."""

    action: str
    """Action with its service, as in ``s3:GetObject``."""
    resource: str
    """ARN, or ``*`` for an action that has no kind of resource."""
    context: Mapping[str, Sequence[str]]
    """Values of condition keys."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """One key of one condition operator."""

    operator: str
    key: str
    values: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """One statement, with lists even where the document has a single value."""

    allows: bool
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: tuple[Condition, ...]
    principals: tuple[str, ...] = ("*",)
    """Principals of a resource's policy."""
    is_not_action: bool = False
    """True for NotAction: the statement applies to all other actions."""
    is_not_resource: bool = False
    """True for NotResource: the statement applies to all other resources."""


class Decision(Enum):
    """Result of evaluating policies, in the words of AWS's errors."""

    ALLOWED = ""
    NOT_ALLOWED = "because no identity-based policy allows the {action} action"
    DENIED = "with an explicit deny in an identity-based policy"
    DENIED_BY_RESOURCE = "with an explicit deny in a resource-based policy"


def evaluate(
    permission: Permission, identity_policies: Sequence[Statement], resource_policies: Sequence[Statement] = ()
) -> Decision:
    """Evaluate the policies of the caller and of the resource: a Deny wins, and without an Allow nothing is allowed."""
    of_identity = [statement for statement in identity_policies if _matches(statement, permission)]
    of_resource = [statement for statement in resource_policies if _matches(statement, permission)]
    if not all(statement.allows for statement in of_identity):
        return Decision.DENIED
    if not all(statement.allows for statement in of_resource):
        return Decision.DENIED_BY_RESOURCE
    return Decision.ALLOWED if of_identity or of_resource else Decision.NOT_ALLOWED


def single_grants(statement: Statement) -> Iterator[Statement]:
    """Split a statement into single grants: one action on one resource, with one value of each condition."""
    for action in statement.actions:
        for resource in statement.resources:
            single = replace(statement, actions=(action,), resources=(resource,))
            if not statement.conditions:
                yield single
            for index, condition in enumerate(statement.conditions):
                for value in condition.values:
                    one = replace(condition, values=(value,))
                    others = (*statement.conditions[:index], one, *statement.conditions[index + 1 :])
                    yield replace(single, conditions=others)


def parse(document: Mapping[str, Any], *, of_resource: bool = False) -> tuple[Statement, ...]:
    """Parse the statements of a policy. Raises PolicyError."""
    _check_keys(document, {"Version", "Statement", "Id"} if of_resource else {"Version", "Statement"}, "policy")
    if document.get("Version") != VERSION:
        raise PolicyError(f"version must be {VERSION}, got {document.get('Version')!r}")
    return tuple(_statement(statement, of_resource=of_resource) for statement in _list(document["Statement"]))


def _statement(document: Mapping[str, Any], *, of_resource: bool) -> Statement:
    _check_keys(document, _STATEMENT_KEYS | ({"Principal"} if of_resource else set()), "statement")
    if document.get("Effect") not in ("Allow", "Deny"):
        raise PolicyError(f"effect must be Allow or Deny, got {document.get('Effect')!r}")
    actions, is_not_action = _values_or_negated(document, "Action")
    resources, is_not_resource = _values_or_negated(document, "Resource")
    for resource in resources:
        _check_variables(resource)
    return Statement(
        allows=document["Effect"] == "Allow",
        actions=actions,
        resources=resources,
        conditions=tuple(_conditions(document.get("Condition", {}))),
        principals=_principals(document["Principal"]) if of_resource else ("*",),
        is_not_action=is_not_action,
        is_not_resource=is_not_resource,
    )


def _conditions(document: Mapping[str, Mapping[str, Any]]) -> Iterator[Condition]:
    for name, keys in document.items():
        operator(name)
        for key in keys:
            if key not in CONDITION_KEYS and not key.startswith(RESOURCE_TAGS):
                known = ", ".join((*sorted(CONDITION_KEYS), *RESOURCE_TAGS))
                raise PolicyError(f"condition key must be one of {known}, got {key!r}")
            condition = Condition(operator=name, key=key, values=_texts(keys, key))
            for value in condition.values:
                _check_variables(value)
            yield condition


def _principals(principals: Any) -> tuple[str, ...]:
    """Return ARNs, account IDs, services, or a star for everyone."""
    if principals == "*":
        return ("*",)
    if not isinstance(principals, Mapping):
        raise PolicyError(f"Principal must be * or an object, got {principals!r}")
    return tuple(value for kind in principals for value in _texts(principals, kind))


def _check_variables(text: str) -> None:
    for name in _VARIABLE.findall(text):
        if name not in VARIABLES:
            raise PolicyError(f"policy variable must be one of {', '.join(sorted(VARIABLES))}, got {name!r}")


def _matches(statement: Statement, permission: Permission) -> bool:
    action = permission.action.lower()
    return (
        any(expression(pattern.lower()).fullmatch(action) for pattern in statement.actions)
        is not statement.is_not_action
        and any(_is_resource(pattern, permission) for pattern in statement.resources) is not statement.is_not_resource
        and all(_holds(condition, permission) for condition in statement.conditions)
        and any(_is_principal(principal, permission) for principal in statement.principals)
    )


def _is_resource(pattern: str, permission: Permission) -> bool:
    filled = _filled(pattern, permission)
    return filled is not None and expression(filled).fullmatch(permission.resource) is not None


def _is_principal(principal: str, permission: Permission) -> bool:
    """Return True if the principal is the caller itself, its role, or its account."""
    arn = next(iter(permission.context.get(PRINCIPAL, ())), "")
    account = next(iter(permission.context.get("aws:PrincipalAccount", ())), "")
    return principal in ("*", arn, account, f"arn:aws:iam::{account}:root")


def _holds(condition: Condition, permission: Permission) -> bool:
    expected = [filled for value in condition.values if (filled := _filled(value, permission)) is not None]
    return operator(condition.operator).holds(permission.context.get(condition.key, ()), expected)


def _filled(text: str, permission: Permission) -> str | None:
    """Return the text with its variables replaced; None, which matches nothing, if the request lacks a value."""
    if "${" not in text:
        return text
    values = {name: permission.context.get(name, ()) for name in _VARIABLE.findall(text)}
    if not all(values.values()):
        return None
    return _VARIABLE.sub(lambda match: values[match[1]][0], text)


def _check_keys(document: Mapping[str, Any], known: frozenset[str] | set[str], what: str) -> None:
    if unknown := document.keys() - known:
        raise PolicyError(f"{what} must have only {', '.join(sorted(known))}, got {', '.join(sorted(unknown))}")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _values_or_negated(document: Mapping[str, Any], name: str) -> tuple[tuple[str, ...], bool]:
    """Return the values of an element or of its negation (NotAction), and True for the negation."""
    opposite = f"Not{name}"
    if (name in document) == (opposite in document):
        raise PolicyError(f"statement must have one of {name} and {opposite}, got {', '.join(sorted(document))}")
    return _texts(document, opposite if opposite in document else name), opposite in document


def _texts(document: Mapping[str, Any], name: str) -> tuple[str, ...]:
    values = [str(value).lower() if isinstance(value, bool) else value for value in _list(document.get(name, []))]
    if not values or not all(isinstance(value, str) for value in values):
        raise PolicyError(f"{name} must be text or a list of it, got {document.get(name)!r}")
    return tuple(values)
