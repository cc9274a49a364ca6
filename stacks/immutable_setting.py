"""Refuse a deploy that changes a setting which cannot change in a running cluster.

The setting becomes a parameter whose default is its value, together with a rule that the two are equal, as they are
when the stack is created. On an update, the CDK's command line passes the previous value of every parameter
(``--previous-parameters``, its default), so that a changed setting breaks the rule. CloudFormation checks rules before
it changes anything: https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/rules-section-structure.html A stack
that is older than the setting has no previous value, so the rule accepts the first change; `dlcluster preflight` finds
it (cli/preflight/stack.py).
"""

import aws_cdk as cdk
from constructs import Construct


class ImmutableSetting(Construct):
    """A setting that CloudFormation refuses to change; ``why`` ends the error message."""

    def __init__(self, scope: Construct, construct_id: str, *, name: str, value: str, why: str) -> None:
        super().__init__(scope, construct_id)
        created_with = cdk.CfnParameter(
            self,
            "CreatedWith",
            default=value,
            description=f"The {name} that the cluster was created with; leave it as it is",
        )
        sentence = (
            f"{name} of a running cluster cannot change, got {value}: {why}; "
            f"go back to the old one (the stack's parameter {created_with.logical_id}), or cdk destroy first"
        )
        cdk.CfnRule(
            self,
            "Unchanged",
            assertions=[
                cdk.CfnRuleAssertion(
                    assert_=cdk.Fn.condition_equals(created_with.value_as_string, value),
                    assert_description=sentence,
                )
            ],
        )
