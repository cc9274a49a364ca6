"""The AWS clients of one region, and AWS's errors as ours."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import boto3
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError, ProfileNotFound
from botocore.parsers import ResponseParserError

from cli.errors import ClusterError, UsageError

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_logs import CloudWatchLogsClient
    from mypy_boto3_ssm import SSMClient
    from mypy_boto3_sts import STSClient


LONGEST_LINE: Final = 400
"""A refusal names the caller, the action and the resource; what is longer is no sentence."""


class Clients:
    """What dlcluster calls; it only reads. A client is made when first used: that takes a while."""

    def __init__(self, session: boto3.Session) -> None:
        self._session = session
        self.region: str = session.region_name

    @cached_property
    def autoscaling(self) -> "AutoScalingClient":
        return self._session.client("autoscaling")

    @cached_property
    def cloudformation(self) -> "CloudFormationClient":
        return self._session.client("cloudformation")

    @cached_property
    def dynamodb(self) -> "DynamoDBClient":
        return self._session.client("dynamodb")

    @cached_property
    def ec2(self) -> "EC2Client":
        return self._session.client("ec2")

    @cached_property
    def iam(self) -> Any:
        return self._session.client("iam")

    @cached_property
    def logs(self) -> "CloudWatchLogsClient":
        return self._session.client("logs")

    @cached_property
    def service_quotas(self) -> Any:
        return self._session.client("service-quotas")

    @cached_property
    def ssm(self) -> "SSMClient":
        return self._session.client("ssm")

    @cached_property
    def sts(self) -> "STSClient":
        return self._session.client("sts")


def connect(region: str | None) -> Clients:
    """Clients for `region`, or for the region of the environment or profile."""
    # boto3 itself reads AWS_DEFAULT_REGION only; every other tool reads AWS_REGION.
    session = boto3.Session(region_name=region or os.environ.get("AWS_REGION") or None)
    if session.region_name is None:
        raise NoRegionError
    return Clients(session)


@contextmanager
def aws_errors() -> Iterator[None]:
    """Turn what boto3 raises into one line of ours."""
    try:
        yield
    except NoRegionError as error:
        raise UsageError("no region given: use --region or set AWS_REGION") from error
    except (NoCredentialsError, ProfileNotFound) as error:
        raise ClusterError(f"no AWS credentials: {error}") from error
    except ClientError as error:
        details = error.response["Error"]
        code, message = details.get("Code", "unknown"), details.get("Message", "")
        # An HTTP status in the code's place: not an error of AWS's own, and the message some web page.
        reason = f"HTTP status {code}" if code.isdigit() else f"{code}: {message}"
        raise ClusterError(_one_line(f"AWS refused {error.operation_name}: {reason}")) from error
    except BotoCoreError as error:
        raise ClusterError(_one_line(f"AWS cannot be asked: {error}")) from error
    except ResponseParserError as error:
        raise ClusterError("AWS cannot be asked: something else answers in its place") from error


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}..."
