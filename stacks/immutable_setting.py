"""Settings that a running cluster keeps: a deploy that changes one is refused, and touches nothing.

CloudFormation could only follow most such changes by replacing the network, and with it every node. Each
setting is a parameter whose default is the setting, and a rule says that the two are equal: as they are
when the stack is created. On an update the CDK's command line asks for the previous value of every
parameter (``--previous-parameters``, its default), so that a changed setting breaks the rule, and
CloudFormation judges rules before anything else:
https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/rules-section-structure.html
"""

from typing import Final

import aws_cdk as cdk
from constructs import Construct

REPLACES: Final = "it would replace the network and every node"


class FixedSetting(Construct):
    """One setting, refused by CloudFormation when it is no longer what the stack was created with."""

    def __init__(self, scope: Construct, construct_id: str, *, name: str, value: str, why: str = REPLACES) -> None:
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
