"""Where the cluster is to go: the account, the region, the settings, and what several checks ask of them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from cli.aws.clients import Clients
from cli.preflight.finding import Finding
from stacks.settings.props import ClusterProps

if TYPE_CHECKING:
    from mypy_boto3_cloudformation.type_defs import StackTypeDef


_SETTLED: Final = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE")


@dataclass(frozen=True, kw_only=True, slots=True)
class PreflightTarget:
    """What every check is given."""

    clients: Clients
    props: ClusterProps
    context: Mapping[str, Any]
    """The CDK's, for what it looked up before and how the account was bootstrapped."""
    account: str
    caller: str
    """ARN of who asks."""

    @property
    def region(self) -> str:
        return self.clients.region

    @property
    def partition(self) -> str:
        """``aws``, ``aws-cn`` or ``aws-us-gov``."""
        return self.caller.split(":")[1]

    @property
    def nodes(self) -> int:
        """How many instances the cluster has."""
        return self.props.worker_count + 1

    @property
    def qualifier(self) -> str:
        """What ``cdk bootstrap`` has in the names of its resources."""
        return str(self.context.get("@aws-cdk/core:bootstrapQualifier", "hnb659fds"))


Check = Callable[[PreflightTarget], Iterator[Finding]]


def find_stack(target: PreflightTarget) -> "StackTypeDef | None":
    """The stack that has the cluster's name now, if any."""
    try:
        return target.clients.cloudformation.describe_stacks(StackName=target.props.cluster_name)["Stacks"][0]
    except ClientError as error:
        if error.response["Error"]["Code"] == "ValidationError":
            return None
        raise


def is_deployed(target: PreflightTarget) -> bool:
    """Whether the network of the cluster is there already and need not be made."""
    stack = find_stack(target)
    return stack is not None and stack["StackStatus"] in _SETTLED
