"""Create the clients of the AWS services, with retries and timeouts that suit an agent."""

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import NoCredentialsError

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_logs import CloudWatchLogsClient

    from bootstrap.mxnet_environment.archive import S3

DEFAULT: Final = Config(retries={"mode": "adaptive", "total_max_attempts": 3}, connect_timeout=5, read_timeout=10)
"""Retries and timeouts of most services."""
SHORT: Final = Config(retries={"mode": "adaptive", "total_max_attempts": 3}, connect_timeout=2, read_timeout=4)
"""Retries and timeouts of the table: short, because it answers in milliseconds and must not delay a draining node."""
ONE_ATTEMPT: Final = Config(retries={"mode": "standard", "total_max_attempts": 1}, connect_timeout=2, read_timeout=5)
"""A single attempt, for a service that the agent does not depend on."""


class Clients:
    """Clients, each created on first use: reading a service's model is slow, and a worker needs few."""

    def __init__(self, session: boto3.session.Session) -> None:
        self._session = session

    @cached_property
    def dynamodb(self) -> "DynamoDBClient":
        """Return the client of the cluster's table."""
        return self._session.client("dynamodb", config=SHORT)

    @cached_property
    def cloudformation(self) -> "CloudFormationClient":
        """Return the client of the stack."""
        return self._session.client("cloudformation", config=DEFAULT)

    @cached_property
    def stack_reader(self) -> "CloudFormationClient":
        """Return a client of the stack that makes a single attempt, for calls that can wait."""
        return self._session.client("cloudformation", config=ONE_ATTEMPT)

    @cached_property
    def fsx(self) -> Any:
        """Return the client of FSx; only the master of a cluster with Lustre uses it."""
        return self._session.client("fsx", config=ONE_ATTEMPT)

    @cached_property
    def autoscaling(self) -> "AutoScalingClient":
        """Return the client of the groups; only the master's role may describe them."""
        return self._session.client("autoscaling", config=DEFAULT)

    @cached_property
    def ec2(self) -> "EC2Client":
        """Return the client of the instances; only the master's role may describe them."""
        return self._session.client("ec2", config=DEFAULT)

    @cached_property
    def s3(self) -> "S3":
        """Return the client of the cluster's bucket; only a node with ``frameworks`` uses it."""
        client: S3 = self._session.client("s3", config=DEFAULT)
        return client

    @cached_property
    def logs(self) -> "CloudWatchLogsClient":
        """Return the client of the log group."""
        return self._session.client("logs", config=ONE_ATTEMPT)


def connect(region: str) -> Clients:
    """Find the node's credentials and create the clients. Raises NoCredentialsError if there are none yet.

    A client created without credentials would never look for them again.
    """
    session = boto3.session.Session(region_name=region)
    if session.get_credentials() is None:
        raise NoCredentialsError()
    return Clients(session)
