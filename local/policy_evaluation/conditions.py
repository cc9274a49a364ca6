"""Evaluate the condition operators of IAM policies.

AWS: "IAM JSON policy elements: Condition operators" and "Set operators for multivalued context keys" in the IAM User
Guide. Operators on dates and binary values are missing because no policy here uses them.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final


class PolicyError(Exception):
    """A part of a policy is not supported here."""


Test = Callable[[str, str], bool]
"""Function that returns whether a value of the request matches one value of the policy."""

FOR_ALL: Final = "ForAllValues:"
FOR_ANY: Final = "ForAnyValue:"
IF_EXISTS: Final = "IfExists"
NULL: Final = "Null"


@cache
def expression(pattern: str) -> re.Pattern[str]:
    """Compile a policy's wildcards: ``*`` matches any characters, including slashes, and ``?`` matches one."""
    return re.compile(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)


def like(value: str, pattern: str) -> bool:
    return expression(pattern).fullmatch(value) is not None


def _equal_ignoring_case(actual: str, expected: str) -> bool:
    return actual.lower() == expected.lower()


def _in_network(actual: str, expected: str) -> bool:
    return ipaddress.ip_address(actual) in ipaddress.ip_network(expected)


_POSITIVE: Final[Mapping[str, Test]] = {
    "StringEquals": str.__eq__,
    "StringEqualsIgnoreCase": _equal_ignoring_case,
    "StringLike": like,
    "ArnEquals": like,
    "ArnLike": like,
    "Bool": _equal_ignoring_case,
    "IpAddress": _in_network,
    "NumericEquals": lambda actual, expected: float(actual) == float(expected),
    "NumericLessThan": lambda actual, expected: float(actual) < float(expected),
    "NumericLessThanEquals": lambda actual, expected: float(actual) <= float(expected),
    "NumericGreaterThan": lambda actual, expected: float(actual) > float(expected),
    "NumericGreaterThanEquals": lambda actual, expected: float(actual) >= float(expected),
}
_NEGATED: Final[Mapping[str, Test]] = {
    "StringNotEquals": str.__eq__,
    "StringNotEqualsIgnoreCase": _equal_ignoring_case,
    "StringNotLike": like,
    "ArnNotEquals": like,
    "ArnNotLike": like,
    "NotIpAddress": _in_network,
    "NumericNotEquals": _POSITIVE["NumericEquals"],
}
OPERATORS: Final = (*_POSITIVE, *_NEGATED, NULL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Operator:
    """A condition operator with its prefix and suffix."""

    name: str
    test: Test
    negated: bool
    every: bool
    """True for ForAllValues, which holds for a request without the key."""
    any_value: bool
    """True for ForAnyValue."""
    if_exists: bool

    def holds(self, actual: Sequence[str], expected: Sequence[str]) -> bool:
        """Return True if the values of a key in a request match those in a policy."""
        if self.name == NULL:
            return any(_equal_ignoring_case(str(not actual), value) for value in expected)
        if not actual:
            return self.every or self.if_exists or (self.negated and not self.any_value)
        verdicts = [any(self.test(value, pattern) for pattern in expected) is not self.negated for value in actual]
        if self.any_value:
            return any(verdicts)
        # A key with several values needs a set operator; without one, only a single value can match.
        return all(verdicts) and (self.every or self.negated or len(actual) == 1)


@cache
def operator(text: str) -> Operator:
    """Return the operator that a policy names. Raises PolicyError."""
    every, some = text.startswith(FOR_ALL), text.startswith(FOR_ANY)
    bare = text.removeprefix(FOR_ALL).removeprefix(FOR_ANY)
    name = bare.removesuffix(IF_EXISTS)
    if name not in OPERATORS or (name == NULL and text != NULL):
        raise PolicyError(f"condition operator must be one of {', '.join(OPERATORS)}, got {text!r}")
    test = _POSITIVE.get(name) or _NEGATED.get(name, str.__eq__)
    return Operator(name=name, test=test, negated=name in _NEGATED, every=every, any_value=some, if_exists=name != bare)
