"""Define the target of a deploy: account, region, settings, and the queries that several checks share."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cli.aws.clients import Clients
from cli.aws.stack_history import describe_stack
from cli.preflight.finding import Finding
from stacks.settings.props import ClusterProps

if TYPE_CHECKING:
    from mypy_boto3_cloudformation.type_defs import StackTypeDef


_SETTLED: Final = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE")


@dataclass(frozen=True, kw_only=True, slots=True)
class PreflightTarget:
    """The input of every check."""

    clients: Clients
    props: ClusterProps
    cdk_context: Mapping[str, Any]
    """The CDK's context: earlier look-ups, and the qualifier of the bootstrapped account."""
    account: str
    caller: str
    """ARN of the caller."""
    is_bootstrapped: bool = True
    """False if ``cdk bootstrap`` was not run, so that its roles do not exist and nothing can be asked about them."""

    @classmethod
    def of(cls, clients: Clients, props: ClusterProps, cdk_context: Mapping[str, Any]) -> "PreflightTarget":
        """Return the target with the account and ARN of the caller."""
        caller = clients.sts.get_caller_identity()
        return cls(
            clients=clients, props=props, cdk_context=cdk_context, account=caller["Account"], caller=caller["Arn"]
        )

    @property
    def region(self) -> str:
        """Return the region of the deploy."""
        return self.clients.region

    @property
    def partition(self) -> str:
        """Return ``aws``, ``aws-cn`` or ``aws-us-gov``."""
        return self.caller.split(":")[1]

    @property
    def node_count(self) -> int:
        """Return the number of the cluster's instances, the master included."""
        return self.props.worker_count + 1

    @property
    def qualifier(self) -> str:
        """Return the part of the names of ``cdk bootstrap``'s resources."""
        return str(self.cdk_context.get("@aws-cdk/core:bootstrapQualifier", "hnb659fds"))


Check = Callable[[PreflightTarget], Iterator[Finding]]


def find_current_stack(target: PreflightTarget) -> "StackTypeDef | None":
    """Return the stack that currently has the cluster's name, if any."""
    return describe_stack(target.clients.cloudformation, target.props.cluster_name)


def vpc_exists(target: PreflightTarget, vpc_id: str) -> bool:
    """Return True if the account can see the VPC in the region."""
    # A filter, because AWS refuses an unknown VpcIds.
    return bool(target.clients.ec2.describe_vpcs(Filters=[{"Name": "vpc-id", "Values": [vpc_id]}])["Vpcs"])


def is_deployed(target: PreflightTarget) -> bool:
    """Return True if the stack exists and is settled, and thus the cluster's network exists."""
    stack = find_current_stack(target)
    return stack is not None and stack["StackStatus"] in _SETTLED
