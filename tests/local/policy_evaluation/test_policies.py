"""Test which calls IAM policies allow."""

from typing import Any

import pytest

from local.policy_evaluation.conditions import PolicyError
from local.policy_evaluation.policies import USER_ID, Decision, Permission, evaluate, parse

TABLE = "arn:aws:dynamodb:us-east-1:123456789012:table/cluster"
KEYS = "dynamodb:LeadingKeys"
GROUP = "aws:ResourceTag/aws:autoscaling:groupName"
EVERY, ONE = "ForAllValues:StringEquals", "StringEquals"


def statement(**changes: Any) -> dict[str, Any]:
    made = {"Effect": "Allow", "Action": "dynamodb:PutItem", "Resource": TABLE, **changes}
    return {name: value for name, value in made.items() if value is not None}


def policy(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def request(
    action: str = "dynamodb:PutItem", resource: str = TABLE, keys: tuple[str, ...] | None = ("AROA:i-1",)
) -> Permission:
    context = {} if keys is None else {KEYS: keys}
    return Permission(action=action, resource=resource, context={USER_ID: ("AROA:i-1",), **context})


def allowed(asked: Permission, *statements: dict[str, Any]) -> bool:
    return evaluate(asked, parse(policy(*statements))) is Decision.ALLOWED


def test_named_action_and_resource_are_allowed() -> None:
    assert allowed(request(), statement())
    assert evaluate(request(), parse({"Version": "2012-10-17", "Statement": statement()})) is Decision.ALLOWED


@pytest.mark.parametrize(
    "asked",
    [
        request(action="dynamodb:UpdateItem"),
        request(action="s3:PutItem"),
        request(resource=f"{TABLE}-2"),
        request(resource="arn:aws:dynamodb:us-west-2:123456789012:table/cluster"),
        request(resource=TABLE.upper()),
        request(resource="*"),
    ],
)
def test_other_actions_and_resources_are_not_allowed(asked: Permission) -> None:
    assert not allowed(asked, statement())


def test_empty_policy_allows_nothing() -> None:
    assert not allowed(request())


@pytest.mark.parametrize(
    ("changes", "asked", "expected"),
    [
        ({"Action": ["dynamodb:GetItem", "dynamodb:PutItem"]}, request(), True),
        ({"Action": "dynamodb:*Item"}, request(), True),
        ({"Action": "DYNAMODB:putitem"}, request(), True),
        ({"Action": "dynamodb:Put"}, request(), False),
        ({"Action": "dynamodb.PutItem"}, request(), False),
        ({"Action": "*"}, request(), True),
        ({"Resource": "*"}, request(), True),
        ({"Resource": "*"}, request(resource="*"), True),
        ({"Resource": ["arn:aws:s3:::a/b", TABLE]}, request(), True),
        ({"Resource": "arn:aws:dynamodb:*:123456789012:table/*"}, request(), True),
        ({"Resource": "arn:aws:dynamodb:*:table/*"}, request(resource=f"{TABLE}/index/a"), True),
        ({"Resource": TABLE[:-1] + "?"}, request(), True),
        ({"Resource": TABLE + "?"}, request(), False),
        ({"Resource": TABLE.replace("cluster", "[a-z]+")}, request(), False),
        ({"Resource": "arn:aws:s3:::b/${aws:userid}"}, request(resource="arn:aws:s3:::b/AROA:i-1"), True),
        ({"Resource": "arn:aws:s3:::b/${aws:userid}"}, request(resource="arn:aws:s3:::b/AROA:i-2"), False),
    ],
)
def test_wildcards_and_lists_match(changes: dict[str, Any], asked: Permission, expected: bool) -> None:
    assert allowed(asked, statement(**changes)) is expected


@pytest.mark.parametrize(
    ("operator", "values", "keys", "expected"),
    [
        (EVERY, ["membership"], ("membership",), True),
        (EVERY, "membership", ("membership",), True),
        (EVERY, ["membership"], ("other",), False),
        (EVERY, ["membership"], ("membership", "other"), False),
        (EVERY, ["membership", "other"], ("other", "membership"), True),
        (EVERY, ["membership"], None, True),
        (EVERY, ["member*"], ("membership",), False),
        (EVERY, ["${aws:userid}"], ("AROA:i-1",), True),
        (EVERY, ["${aws:userid}"], ("AROA:i-2",), False),
        (EVERY, ["${aws:userid}"], ("${aws:userid}",), False),
        (ONE, ["membership"], ("membership",), True),
        (ONE, ["membership"], ("Membership",), False),
        (ONE, ["membership"], None, False),
        (ONE, ["membership"], ("membership", "membership"), False),
    ],
)
def test_condition_decides_the_verdict(
    operator: str, values: Any, keys: tuple[str, ...] | None, expected: bool
) -> None:
    assert allowed(request(keys=keys), statement(Condition={operator: {KEYS: values}})) is expected


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ({GROUP: ("deeplearning-master",)}, True),
        ({GROUP: ("deeplearning-worker",)}, False),
        ({}, False),
        ({KEYS: ("deeplearning-master",)}, False),
    ],
)
def test_instance_must_have_the_tag(context: dict[str, tuple[str, ...]], expected: bool) -> None:
    instance = "arn:aws:ec2:us-east-1:123456789012:instance"
    granted = statement(
        Action="ec2:AssociateAddress",
        Resource=f"{instance}/*",
        Condition={ONE: {GROUP: "deeplearning-master"}},
    )
    asked = Permission(action="ec2:AssociateAddress", resource=f"{instance}/i-1", context=context)
    assert allowed(asked, granted) is expected


def test_wildcard_for_an_id_matches_any_id() -> None:
    groups = "arn:aws:autoscaling:us-east-1:123456789012:autoScalingGroup"
    granted = statement(Action="autoscaling:SetInstanceHealth", Resource=f"{groups}:*:autoScalingGroupName/of-workers")
    for name, expected in (("of-workers", True), ("of-workers-2", False), ("of-masters", False), ("*", False)):
        resource = f"{groups}:6e1d-11:autoScalingGroupName/{name}"
        assert allowed(request("autoscaling:SetInstanceHealth", resource, None), granted) is expected


@pytest.mark.parametrize(
    ("operator", "values", "actual", "expected"),
    [
        ("StringNotEquals", "a", ("b",), True),
        ("StringNotEquals", "a", ("a",), False),
        ("StringNotEquals", "a", None, True),
        ("StringNotEquals", ["a", "b"], ("b",), False),
        ("StringEqualsIgnoreCase", "A", ("a",), True),
        ("StringLike", ["checkpoints/*", "x"], ("checkpoints/a/b",), True),
        ("StringLike", ["checkpoints/*"], ("mxnet/a",), False),
        ("StringLike", ["checkpoints/*"], None, False),
        ("StringNotLike", "mxnet/*", ("mxnet/a",), False),
        ("ArnLike", "arn:aws:iam::*:role/a", ("arn:aws:iam::1:role/a",), True),
        ("StringEqualsIfExists", "a", None, True),
        ("StringEqualsIfExists", "a", ("b",), False),
        ("Bool", False, ("false",), True),
        ("Bool", "true", ("false",), False),
        ("Null", "true", None, True),
        ("Null", "true", ("a",), False),
        ("Null", "false", ("a",), True),
        ("IpAddress", "10.0.0.0/8", ("10.1.2.3",), True),
        ("IpAddress", "10.0.0.0/8", ("11.1.2.3",), False),
        ("NotIpAddress", ["10.0.0.0/8"], ("11.1.2.3",), True),
        ("NumericLessThanEquals", "10", ("9",), True),
        ("NumericLessThanEquals", "10", ("11",), False),
        ("ForAnyValue:StringEquals", "a", ("b", "a"), True),
        ("ForAnyValue:StringEquals", "a", ("b",), False),
        ("ForAnyValue:StringEquals", "a", None, False),
        ("ForAllValues:StringNotEquals", "a", ("b", "a"), False),
        ("ForAllValues:StringLike", "a*", ("ab", "ac"), True),
    ],
)
def test_condition_operator_decides_the_verdict(
    operator: str, values: Any, actual: tuple[str, ...] | None, expected: bool
) -> None:
    assert allowed(request(keys=actual), statement(Condition={operator: {KEYS: values}})) is expected


@pytest.mark.parametrize(
    ("changes", "asked", "expected"),
    [
        ({"Action": None, "NotAction": "dynamodb:PutItem"}, request(), False),
        ({"Action": None, "NotAction": ["dynamodb:Get*"]}, request(), True),
        ({"Resource": None, "NotResource": TABLE}, request(), False),
        ({"Resource": None, "NotResource": f"{TABLE}-*"}, request(), True),
        ({"Resource": "arn:aws:s3:::b/${aws:username}"}, request(resource="arn:aws:s3:::b/"), False),
    ],
)
def test_not_action_and_not_resource_match_all_others(
    changes: dict[str, Any], asked: Permission, expected: bool
) -> None:
    assert allowed(asked, statement(**changes)) is expected


def of_a_bucket(**changes: Any) -> Any:
    document = policy(statement(Action="s3:*", Resource="arn:aws:s3:::b/*", Principal="*", **changes))
    return parse(document, of_resource=True)


def test_resource_policies_are_evaluated_with_the_callers() -> None:
    asked = Permission(action="s3:GetObject", resource="arn:aws:s3:::b/k", context={"aws:SecureTransport": ("true",)})
    own = parse(policy(statement(Action="s3:GetObject", Resource="arn:aws:s3:::b/k")))
    insecure = of_a_bucket(Effect="Deny", Condition={"Bool": {"aws:SecureTransport": "false"}})
    assert evaluate(asked, own, insecure) is Decision.ALLOWED
    assert evaluate(asked, own, of_a_bucket(Effect="Deny")) is Decision.DENIED_BY_RESOURCE
    assert evaluate(asked, (), of_a_bucket()) is Decision.ALLOWED
    assert evaluate(asked, (), insecure) is Decision.NOT_ALLOWED


@pytest.mark.parametrize(
    ("principal", "expected"),
    [
        ("*", Decision.ALLOWED),
        ({"AWS": "*"}, Decision.ALLOWED),
        ({"AWS": ["arn:aws:iam::1:role/b", "arn:aws:iam::1:role/a"]}, Decision.ALLOWED),
        ({"AWS": "1"}, Decision.ALLOWED),
        ({"AWS": "arn:aws:iam::1:role/b"}, Decision.NOT_ALLOWED),
        ({"Service": "logging.s3.amazonaws.com"}, Decision.NOT_ALLOWED),
    ],
)
def test_policy_of_a_resource_is_about_its_principals(principal: Any, expected: Decision) -> None:
    document = policy(statement(Principal=principal))
    context = {"aws:PrincipalArn": ("arn:aws:iam::1:role/a",), "aws:PrincipalAccount": ("1",)}
    asked = Permission(action="dynamodb:PutItem", resource=TABLE, context=context)
    assert evaluate(asked, (), parse(document, of_resource=True)) is expected


def test_all_operators_must_hold() -> None:
    both = {EVERY: {KEYS: ["a", "b"]}, ONE: {KEYS: ["b"]}}
    assert allowed(request(keys=("b",)), statement(Condition=both))
    assert not allowed(request(keys=("a",)), statement(Condition=both))


def test_deny_wins_where_it_matches() -> None:
    deny = statement(Effect="Deny", Condition={ONE: {KEYS: ["membership"]}})
    for order in ([statement(), deny], [deny, statement()]):
        assert allowed(request(), *order)
        assert evaluate(request(keys=("membership",)), parse(policy(*order))) is Decision.DENIED


@pytest.mark.parametrize(
    "changes",
    [
        {"Effect": "allow"},
        {"Effect": None},
        {"NotAction": "dynamodb:PutItem"},
        {"NotResource": TABLE},
        {"Principal": "*"},
        {"Action": None},
        {"Resource": []},
        {"Resource": {"Fn::GetAtt": ["Table", "Arn"]}},
        {"Resource": [TABLE, {"Ref": "Table"}]},
        {"Resource": "arn:aws:s3:::b/${aws:UserName}"},
        {"Condition": {"DateLessThan": {KEYS: ["a"]}}},
        {"Condition": {"ForSomeValues:StringEquals": {KEYS: ["a"]}}},
        {"Condition": {"NullIfExists": {KEYS: ["true"]}}},
        {"Condition": {EVERY: {"dynamodb:LeadingKey": ["a"]}}},
        {"Condition": {EVERY: {"aws:Tag/Name": ["a"]}}},
        {"Condition": {EVERY: {KEYS: ["${aws:principaltag/x}"]}}},
        {"Condition": {EVERY: {KEYS: []}}},
    ],
)
def test_unknown_statement_element_is_reported(changes: dict[str, Any]) -> None:
    with pytest.raises(PolicyError):
        parse(policy(statement(**changes)))


@pytest.mark.parametrize(
    "document",
    [
        {"Version": "2008-10-17", "Statement": []},
        {"Statement": []},
        {"Version": "2012-10-17", "Id": "x", "Statement": []},
    ],
)
def test_unknown_policy_element_is_reported(document: dict[str, Any]) -> None:
    with pytest.raises(PolicyError):
        parse(document)
