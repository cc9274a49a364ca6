"""Read byte ranges of one object in S3 with boto3, as if it were a file that does not change."""

import importlib.util
import sys
import time
from pathlib import Path
from typing import Any, Final

from trainer.errors import TrainerError
from trainer.s3 import SCHEME

VENDOR: Final = Path(__file__).resolve().parents[3] / "vendor"
"""Libraries of the release on the cluster's nodes, for a Python without boto3."""
CONNECTIONS: Final = 32
"""Number of ranges that one object is asked for at the same time."""
CONNECT_S: Final = 10
"""Longest wait for a connection, in seconds."""
SILENCE_S: Final = 30
"""Longest wait for the next bytes, in seconds."""
REQUEST_ATTEMPTS: Final = 4
"""Attempts of boto3 for an answer: it tries again when S3 is busy or cannot be reached."""
READ_S: Final = 120.0
"""Longest time to read one range, in seconds, with all attempts: the other ranks wait for it (timeouts.STEP_S)."""
PAUSE_S: Final = 1.0
"""Pause before the rest of a range is asked for again, in seconds."""
CHUNK: Final = 1 << 20
CHANGED: Final = ("PreconditionFailed", "412")
ABSENT: Final = ("404", "NoSuchKey", "NotFound")


class S3Object:
    """An object as it was when it was opened; a change of it is an error."""

    def __init__(self, url: str, *, client: Any) -> None:
        """Ask for size and ETag. Raises TrainerError if the object is absent or refused."""
        from botocore.exceptions import BotoCoreError, ClientError

        self.place = url
        self._client = client
        self._bucket, _, self._key = url.removeprefix(SCHEME).partition("/")
        try:
            head = client.head_object(Bucket=self._bucket, Key=self._key)
        except ClientError as error:
            raise self._refused(error) from error
        except BotoCoreError as error:
            raise self._unreadable(error) from error
        self.size = int(head["ContentLength"])
        self.version = str(head["ETag"])

    def read(self, begin: int, size: int) -> bytes:
        """Return the bytes of a range, less at the end of the object.

        A connection that breaks is replaced by one that reads the rest. Raises TrainerError if the object changed.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        content = bytearray()
        size = min(size, self.size - begin)
        deadline = time.monotonic() + READ_S
        while True:
            try:
                self._read_on(content, begin, size)
                return bytes(content)
            except ClientError as error:
                raise self._refused(error) from error
            except BotoCoreError as error:
                if time.monotonic() + PAUSE_S > deadline:
                    raise self._unreadable(error) from error
                time.sleep(PAUSE_S)

    def _read_on(self, content: bytearray, begin: int, size: int) -> None:
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
            return TrainerError(f"cannot read {self.place}, no such object")
        return self._unreadable(error)

    def _unreadable(self, error: Exception) -> TrainerError:
        return TrainerError(f"cannot read {self.place}, {' '.join(str(error).split())}")


def connect() -> Any:
    """Return a client of S3, which threads may share. Raises TrainerError without boto3."""
    if importlib.util.find_spec("boto3") is None and VENDOR.is_dir():
        sys.path.append(str(VENDOR))
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ModuleNotFoundError as error:
        raise TrainerError(
            f"RecordIO files in S3 need boto3, which this Python lacks: {sys.executable} -m pip install boto3"
        ) from error
    settings = Config(
        retries={"mode": "standard", "total_max_attempts": REQUEST_ATTEMPTS},
        connect_timeout=CONNECT_S,
        read_timeout=SILENCE_S,
        max_pool_connections=CONNECTIONS,
    )
    try:
        return boto3.session.Session().client("s3", config=settings)
    except BotoCoreError as error:
        raise TrainerError(f"cannot use S3, {' '.join(str(error).split())}") from error
