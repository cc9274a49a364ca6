"""Create the clients of the AWS services, with retries and timeouts that suit an agent."""

from functools import cached_property
from typing import TYPE_CHECKING, Final

import boto3
from botocore.config import Config
from botocore.exceptions import NoCredentialsError

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_logs import CloudWatchLogsClient

    from bootstrap.frameworks.archive import S3

PATIENT: Final = Config(retries={"mode": "adaptive", "total_max_attempts": 3}, connect_timeout=5, read_timeout=10)
PROMPT: Final = Config(retries={"mode": "adaptive", "total_max_attempts": 3}, connect_timeout=2, read_timeout=4)
"""For the table, which answers in milliseconds: it must not delay a node that drains by half a minute."""
HASTY: Final = Config(retries={"mode": "standard", "total_max_attempts": 1}, connect_timeout=2, read_timeout=5)
"""For services that the agent can do without."""


class Clients:
    """One client a service, created on first use: reading a service's model is slow, and a worker
    needs few.
    """

    def __init__(self, session: boto3.session.Session) -> None:
        self._session = session

    @cached_property
    def dynamodb(self) -> "DynamoDBClient":
        """The client of the cluster's table."""
        return self._session.client("dynamodb", config=PROMPT)

    @cached_property
    def cloudformation(self) -> "CloudFormationClient":
        """The client of the stack."""
        return self._session.client("cloudformation", config=PATIENT)

    @cached_property
    def autoscaling(self) -> "AutoScalingClient":
        """The client of the groups; only the master's role may describe them."""
        return self._session.client("autoscaling", config=PATIENT)

    @cached_property
    def ec2(self) -> "EC2Client":
        """The client of the instances; only the master's role may describe them."""
        return self._session.client("ec2", config=PATIENT)

    @cached_property
    def s3(self) -> "S3":
        """The client of the cluster's bucket; only a node with ``engines`` uses it."""
        client: S3 = self._session.client("s3", config=PATIENT)
        return client

    @cached_property
    def logs(self) -> "CloudWatchLogsClient":
        """The client of the log group."""
        return self._session.client("logs", config=HASTY)


def connect(region: str) -> Clients:
    """Find the node's credentials and create the clients. Raises NoCredentialsError while the role has none.

    A client created without credentials never looks for them again.
    """
    session = boto3.session.Session(region_name=region)
    if session.get_credentials() is None:
        raise NoCredentialsError()
    return Clients(session)
