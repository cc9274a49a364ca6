"""Judge a file system's policy as EFS does for the nodes: they mount in TLS, and name no role (decision 059).

EFS sets no condition keys but these for NFS clients ("Using IAM to control access to file systems", Amazon EFS User
Guide). A policy replaces the default one, which lets every client in: what it does not allow is denied.
"""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

MOUNT: Final = "elasticfilesystem:ClientMount"
WRITE: Final = "elasticfilesystem:ClientWrite"
_REQUEST: Final[Mapping[str, str]] = {
    "aws:securetransport": "true",
    "elasticfilesystem:accessedviamounttarget": "true",
}
"""Condition keys of a node's mount, with their values: it uses no access point and comes from a private address."""

Statement = Mapping[str, Any]


def allows(policy: Mapping[str, Any], action: str) -> bool:
    """Return whether the nodes may do the action."""
    found = [statement["Effect"] for statement in _statements(policy) if _applies(statement, action)]
    return "Allow" in found and "Deny" not in found


def denying(policy: Mapping[str, Any], action: str) -> list[str]:
    """Return the names of the statements that deny the action to the nodes."""
    return [
        f"statement {statement.get('Sid') or number}"
        for number, statement in enumerate(_statements(policy), start=1)
        if statement["Effect"] == "Deny" and _applies(statement, action)
    ]


def _statements(policy: Mapping[str, Any]) -> list[Statement]:
    return _listed(policy["Statement"])


def _applies(statement: Statement, action: str) -> bool:
    return _names_everybody(statement) and _names_action(statement, action) and all(_conditions(statement))


def _names_everybody(statement: Statement) -> bool:
    """Return whether the statement is about clients without IAM, which only the star names."""
    if "NotPrincipal" in statement:
        return not _has_star(statement["NotPrincipal"])
    return _has_star(statement.get("Principal", {}))


def _has_star(principal: Any) -> bool:
    return "*" in (_listed(principal.get("AWS", [])) if isinstance(principal, Mapping) else _listed(principal))


def _names_action(statement: Statement, action: str) -> bool:
    negated = "NotAction" in statement
    patterns = _listed(statement["NotAction"] if negated else statement.get("Action", []))
    return any(fnmatchcase(action.lower(), pattern.lower()) for pattern in patterns) != negated


def _conditions(statement: Statement) -> Iterator[bool]:
    for operator, keys in statement.get("Condition", {}).items():
        yield from (_holds(operator, key, [str(each).lower() for each in _listed(keys[key])]) for key in keys)


def _holds(operator: str, key: str, values: list[str]) -> bool:
    """Evaluate a condition ("IAM JSON policy elements: Condition operators", IAM User Guide)."""
    found, negated = _REQUEST.get(key.lower()), "Not" in operator
    if operator == "Null":
        return (found is None) == ("true" in values)
    if found is None:
        return negated or operator.endswith("IfExists") or operator.startswith("ForAllValues:")
    return any(fnmatchcase(found, value) for value in values) != negated


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
