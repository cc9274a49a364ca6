"""Refuse a deploy that changes a setting which cannot change in a running cluster, and say why it cannot.

The setting becomes a parameter whose default is its value, together with a rule that the two are equal, as they are
when the stack is created. On an update, the CDK's command line passes the previous value of every parameter
(``--previous-parameters``, its default), so that a changed setting breaks the rule. CloudFormation checks rules before
it changes anything:
https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/rules-section-structure.html

A stack that is older than the setting has no previous value, so the rule accepts the first change. `dlcluster
preflight` finds it (cli/preflight/stack.py).
"""

from typing import Final

import aws_cdk as cdk
from constructs import Construct

from bootstrap.contract import IMMUTABLE_ZONE, NO_ZONE
from stacks.settings.props import ClusterProps

UNPINNED_ZONE: Final = "unpinned"
"""Value of the stack's zone parameter if CloudFormation chooses the zone."""
_REPLACES_NETWORK: Final = "the change would replace the network and every node"
_MOVED_BY_UP: Final = "only dlcluster up can move the cluster to another zone, and only while it has no nodes"


class ImmutableSetting(Construct):
    """A setting that CloudFormation refuses to change; ``reason`` becomes part of its error message."""

    def __init__(self, scope: Construct, construct_id: str, *, name: str, value: str, reason: str) -> None:
        super().__init__(scope, construct_id)
        created_with = cdk.CfnParameter(
            self,
            "CreatedWith",
            default=value,
            description=f"The {name} that the cluster was created with; leave it as it is",
        )
        sentence = (
            f"{name} of a running cluster cannot change, got {value}: {reason}; "
            f"set the previous value again (see the stack's parameter {created_with.logical_id}), "
            "or run cdk destroy first"
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


def forbid_changes(scope: Construct, props: ClusterProps, *, zone: str | None) -> None:
    """Make the settings of the running nodes' network, storage and roles immutable."""
    _forbid_network_changes(scope, props)
    ImmutableSetting(
        scope,
        IMMUTABLE_ZONE,
        name="availability_zone",
        value=(zone or UNPINNED_ZONE) if props.has_zone else NO_ZONE,
        reason=_MOVED_BY_UP if props.zones else _REPLACES_NETWORK,
    )
    ImmutableSetting(
        scope,
        "Bucket",
        name="bucket",
        value=props.bucket or "one of its own",
        reason="running nodes would lose their access to the current bucket",
    )
    ImmutableSetting(
        scope,
        "SharedStorageSetting",
        name="shared_storage",
        value=props.shared_storage,
        reason="running nodes neither mount another file system nor unmount theirs",
    )
    if props.creates_file_system:
        ImmutableSetting(
            scope,
            "FileSystemKey",
            name="kms_key",
            value=props.kms_key or "AWS's own",
            reason="CloudFormation would replace the shared file system with an empty one",
        )
    ImmutableSetting(
        scope,
        "RoleNamePrefix",
        name="role_name_prefix",
        value=props.role_name_prefix or "none",
        reason="CloudFormation would replace the roles, and running nodes would lose their permissions",
    )


def _forbid_network_changes(scope: Construct, props: ClusterProps) -> None:
    # Use one parameter for all, so that a cluster can neither move into or out of an existing VPC, nor divide its own
    # differently.
    name, value = "vpc_cidr", props.vpc_cidr
    if props.vpc_id is not None:
        name, value = "vpc_id", props.vpc_id
    if props.zones:
        name, value = "zones", f"{','.join(props.candidate_zones)} in {value}"
    # The ID predates vpc_id and zones. Changing it would lose the stored value.
    ImmutableSetting(scope, "VpcCidr", name=name, value=value, reason=_REPLACES_NETWORK)
    for construct_id, name, subnet in (
        ("Subnet", "subnet_id", props.subnet_id),
        ("MasterSubnet", "master_subnet_id", props.master_subnet),
    ):
        if subnet is not None:
            ImmutableSetting(
                scope,
                construct_id,
                name=name,
                value=subnet,
                reason="running nodes reject addresses outside the original subnet",
            )
    ImmutableSetting(
        scope,
        "Private",
        name="private",
        value=str(props.private).lower(),
        reason="running nodes would keep their subnets and public addresses",
    )
