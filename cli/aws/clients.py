"""Create the AWS clients of one region, and turn AWS's errors into ours."""

import difflib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)
from botocore.exceptions import ConnectionError as NoConnectionError
from botocore.parsers import ResponseParserError
from botocore.session import Session

from cli.errors import ClusterError, CredentialsError, NoAnswerError, UsageError

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_logs import CloudWatchLogsClient
    from mypy_boto3_ssm import SSMClient
    from mypy_boto3_sts import STSClient


MAX_MESSAGE: Final = 400
"""Longest message in characters; enough for a refusal, which names caller, action and resource."""


SIMILAR_REGION: Final = 0.8
"""Smallest ratio of difflib at which an unknown region is taken for a misspelled one."""
EXPIRED: Final = frozenset(("ExpiredToken", "ExpiredTokenException", "RequestExpired"))
UNKNOWN_CALLER: Final = frozenset(
    (
        *("AuthFailure", "InvalidClientTokenId", "OptInRequired", "SignatureDoesNotMatch"),
        *("InvalidSignatureException", "UnrecognizedClientException"),
    )
)
"""AWS's codes for an unknown caller ("Common errors" of its API references)."""


def _client(service: str) -> Any:
    """Return an attribute of Clients that is created on first use, because creating a client is slow."""

    def make(clients: "Clients") -> Any:
        with _sdk_setting_errors():
            made = clients.session.create_client(service)
            _ = urlsplit(made.meta.endpoint_url).port  # botocore itself reads it with the first request
            return made

    return cached_property(make)


class Clients:
    """The clients of one region."""

    def __init__(self, session: Session, region: str) -> None:
        # botocore's session, not boto3's, whose import for S3 transfers costs each login a tenth of its time.
        self.session: Any = session
        self.region = region

    autoscaling: "AutoScalingClient" = _client("autoscaling")
    cloudformation: "CloudFormationClient" = _client("cloudformation")
    dynamodb: "DynamoDBClient" = _client("dynamodb")
    ec2: "EC2Client" = _client("ec2")
    efs: Any = _client("efs")
    fsx: Any = _client("fsx")
    iam: Any = _client("iam")
    kms: Any = _client("kms")
    logs: "CloudWatchLogsClient" = _client("logs")
    s3: Any = _client("s3")
    service_quotas: Any = _client("service-quotas")
    ssm: "SSMClient" = _client("ssm")
    sts: "STSClient" = _client("sts")
    tagging: Any = _client("resourcegroupstaggingapi")


def create_clients(region: str | None) -> Clients:
    """Return clients for `region`, or for the region of the environment or profile."""
    session = Session()
    # botocore itself reads only AWS_DEFAULT_REGION; every other tool reads AWS_REGION.
    chosen = region or os.environ.get("AWS_REGION")
    with _sdk_setting_errors():
        if chosen:
            session.set_config_variable("region", chosen)
        region_name = session.get_config_variable("region")
        session.get_scoped_config()  # raises an error for a missing profile
    if not region_name:  # botocore takes an empty AWS_DEFAULT_REGION for a name
        raise NoRegionError
    return Clients(session, region_name)


def _region(region: str | None) -> str:
    """Return the name of the region for a message."""
    return create_clients(region).region


@contextmanager
def _sdk_setting_errors() -> Iterator[None]:
    """Turn botocore's ValueError for an unusable variable or profile into a UsageError."""
    try:
        yield
    except ValueError as error:
        # Most messages quote the value, but none names the variable that contains it.
        guilty = [name for name, value in os.environ.items() if name.startswith("AWS_") and repr(value) in str(error)]
        sources = ", ".join(guilty) or "--region, AWS_ENDPOINT_URL and its like, the profile"
        raise UsageError(_shorten(f"the settings for AWS ({sources}) cannot be used: {error}")) from error


@contextmanager
def aws_errors(region: str | None) -> Iterator[None]:
    """Turn boto3's exceptions into ClusterErrors of one line; ``region`` is the argument of create_clients()."""
    try:
        yield
    except NoRegionError as error:
        raise UsageError("no region given: use --region or set AWS_REGION") from error
    except (NoCredentialsError, ProfileNotFound) as error:
        raise CredentialsError(f"no AWS credentials: {error}") from error
    except (CredentialRetrievalError, SSOError, TokenRetrievalError) as error:
        raise CredentialsError(_shorten(f"the AWS credentials cannot be used: {error}")) from error
    except ClientError as error:
        code = error.response["Error"].get("Code", "unknown")
        # An HTTP status in place of a code: the error is not AWS's own, and the message is some web page.
        if code.isdigit():
            raise _no_answer(f"AWS refused {error.operation_name}: HTTP status {code}", region) from error
        refused = refusal(error)
        if code in EXPIRED:
            raise CredentialsError(refused) from error
        if code in UNKNOWN_CALLER:
            # AWS also answers this way in a region that the account has not enabled.
            place = f" (or the region {_region(region)} is not enabled for the account)"
            raise CredentialsError(f"{refused}{place}") from error
        raise ClusterError(refused) from error
    except (NoConnectionError, HTTPClientError) as error:
        raise _no_answer(_shorten(f"cannot call AWS: {error}"), region) from error
    except BotoCoreError as error:
        raise ClusterError(_shorten(f"cannot call AWS: {error}")) from error
    except ResponseParserError as error:
        place = f"in place of the region {_region(region)}"
        raise _no_answer(f"cannot call AWS: something else answers {place}", region) from error


def refusal(error: ClientError) -> str:
    """Return AWS's answer to a call that it refused, as one line."""
    details = error.response["Error"]
    code, message = details.get("Code", "unknown"), details.get("Message", "")
    return _shorten(f"AWS refused {error.operation_name}: {code}: {message}")


def _no_answer(sentence: str, region: str | None) -> NoAnswerError:
    """Return the error for an AWS that does not answer; ask first whether the region is a typing error.

    Only an error asks, because a region that is newer than botocore works as well.
    """
    clients = create_clients(region)
    partitions = clients.session.get_available_partitions()
    known = [name for each in partitions for name in clients.session.get_available_regions("ec2", each)]
    close = difflib.get_close_matches(clients.region, known, n=2, cutoff=SIMILAR_REGION)
    if clients.region in known or not close:
        return NoAnswerError(sentence)
    return NoAnswerError(f"AWS does not answer in region {clients.region!r} (did you mean {' or '.join(close)}?)")


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_MESSAGE else f"{line[:MAX_MESSAGE]}..."
