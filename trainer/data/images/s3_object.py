"""Read byte ranges of one object in S3 with boto3, as if it were a file that does not change."""

import importlib.util
import logging
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from trainer.errors import TrainerError
from trainer.s3 import SCHEME, node_region

VENDOR: Final = Path(__file__).resolve().parents[3] / "vendor"
"""Libraries of the release on the cluster's nodes, for a Python without boto3."""
CONNECT_TIMEOUT_S: Final = 10
"""Longest wait for a connection, in seconds."""
SILENCE_TIMEOUT_S: Final = 30
"""Longest wait for the next bytes, in seconds."""
REQUEST_ATTEMPTS: Final = 4
"""Attempts of boto3 for an answer: it tries again when S3 is busy or cannot be reached."""
READ_TIMEOUT_S: Final = 120.0
"""Longest time to read one range, in seconds, with all attempts; less than ranks wait in a step (timeouts.py)."""
FIRST_BACKOFF_S: Final = 1.0
"""Upper bound of the first random pause before a retry, in seconds; it doubles with each retry."""
MAX_BACKOFF_S: Final = 16.0
"""Limit of the growing pause, in seconds."""
METADATA_TIMEOUT_S: Final = 5
"""Longest wait for the machine's credentials, in seconds; boto3's second is too short on a new machine."""
METADATA_ATTEMPTS: Final = 5
"""Attempts to get the machine's credentials; boto3's default is one, but all ranks of a machine ask at once."""
CHUNK: Final = 1 << 20
CHANGED: Final = ("PreconditionFailed", "412")
ABSENT: Final = ("404", "NoSuchKey", "NotFound")
BUSY: Final = ("SlowDown", "RequestTimeout", "Throttling", "ThrottlingException")
"""Errors that pass, besides those with the status 500 or more."""
SERVER_ERROR: Final = 500
RANDOM: Final = random.SystemRandom()
"""Random numbers that differ between ranks, and do not disturb those that a seed determines."""


class S3Object:
    """An object as it was when it was opened; a change of it is an error."""

    def __init__(self, url: str, *, client: Any) -> None:
        """Ask for size and ETag. Raises TrainerError if the object is absent or refused."""
        self.place = url
        self._client = client
        self._bucket, _, self._key = url.removeprefix(SCHEME).partition("/")
        head = self._retry(lambda: client.head_object(Bucket=self._bucket, Key=self._key), reconnect=False)
        self.size = int(head["ContentLength"])
        self.version = str(head["ETag"])

    def read(self, begin: int, size: int) -> bytes:
        """Return the bytes of a range, less at the end of the object.

        A connection that breaks is replaced by one that reads the rest. Raises TrainerError if the object changed.
        """
        content = bytearray()
        size = min(size, self.size - begin)
        self._retry(lambda: self._append_rest(content, begin, size))
        return bytes(content)

    def _retry(self, ask: Callable[[], Any], *, reconnect: bool = True) -> Any:
        """Return an answer of S3; while S3 is busy, or the connection breaks, ask again for up to READ_TIMEOUT_S.

        Many ranks read one object, so S3 is busy as a rule: the pauses grow, and are random to spread the requests.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        deadline, longest = time.monotonic() + READ_TIMEOUT_S, FIRST_BACKOFF_S
        while True:
            try:
                return ask()
            except ClientError as error:
                if not _is_busy(error):
                    raise self._refused(error) from error
                failure: Exception = error
            except BotoCoreError as error:
                if not reconnect:
                    raise self._unreadable(error) from error
                failure = error
            pause = RANDOM.uniform(longest / 2, longest)
            if time.monotonic() + pause > deadline:
                raise self._unreadable(failure) from failure
            time.sleep(pause)
            longest = min(2 * longest, MAX_BACKOFF_S)

    def _append_rest(self, content: bytearray, begin: int, size: int) -> None:
        """Append what is missing of a range. Raises BotoCoreError if the connection breaks before its end."""
        if len(content) == size:
            return
        asked = f"bytes={begin + len(content)}-{begin + size - 1}"
        answer = self._client.get_object(Bucket=self._bucket, Key=self._key, Range=asked, IfMatch=self.version)
        while chunk := answer["Body"].read(CHUNK):
            content += chunk

    def _refused(self, error: Any) -> TrainerError:
        code = error.response["Error"]["Code"]
        if code in CHANGED:
            return TrainerError(
                f"{self.place} has changed since the run opened it (its ETag was {self.version}): "
                "store other data under another name, and start the run again"
            )
        if code in ABSENT:
            return TrainerError(f"cannot read {self.place}: no such object")
        return self._unreadable(error)

    def _unreadable(self, error: Exception) -> TrainerError:
        return TrainerError(f"cannot read {self.place}: {' '.join(str(error).split())}")


def _is_busy(error: Any) -> bool:
    """Return True if S3 may answer the same request later."""
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status >= SERVER_ERROR or error.response["Error"]["Code"] in BUSY


def connect(*, connections: int) -> Any:
    """Return a client of S3, which this many threads may share. Raises TrainerError without boto3."""
    if importlib.util.find_spec("boto3") is None and VENDOR.is_dir():
        sys.path.append(str(VENDOR))
    try:
        import boto3
        import botocore.session
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ModuleNotFoundError as error:
        raise TrainerError(
            f"RecordIO files in S3 need boto3, which this Python lacks: {sys.executable} -m pip install boto3"
        ) from error
    # It reports at INFO where each rank's credentials come from.
    logging.getLogger("botocore").setLevel(logging.WARNING)
    core = botocore.session.Session()
    core.set_config_variable("metadata_service_timeout", METADATA_TIMEOUT_S)
    core.set_config_variable("metadata_service_num_attempts", METADATA_ATTEMPTS)
    settings = Config(
        retries={"mode": "standard", "total_max_attempts": REQUEST_ATTEMPTS},
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=SILENCE_TIMEOUT_S,
        max_pool_connections=connections,
    )
    try:
        # Nodes set no variable for it, and without a region botocore asks us-east-1; it does not know AWS_REGION.
        region = os.environ.get("AWS_REGION") or core.get_config_variable("region") or node_region()
        return boto3.session.Session(botocore_session=core, region_name=region).client("s3", config=settings)
    except BotoCoreError as error:
        raise TrainerError(f"cannot use S3, {' '.join(str(error).split())}") from error
