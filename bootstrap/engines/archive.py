"""Environments in the cluster's bucket: there once, whole, for every node that comes later."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from botocore.exceptions import ClientError

from bootstrap.engines.errors import EnginesError

TAR_TIMEOUT_S: Final = 600
NOT_THERE: Final = frozenset({"404", "NoSuchKey", "NotFound"})


class S3(Protocol):
    """What is asked of boto3's client."""

    def head_object(self, *, Bucket: str, Key: str) -> Any:  # noqa: N803  (the API's own names)
        """Describe an object; ClientError 404 where there is none."""

    def download_file(self, Bucket: str, Key: str, Filename: str) -> None:  # noqa: N803  (as above)
        """Fetch an object, in parts when it is large."""

    def upload_file(self, Filename: str, Bucket: str, Key: str) -> None:  # noqa: N803  (as above)
        """Store a file, in parts when it is large."""


class Archive:
    """One environment in a bucket."""

    def __init__(self, client: S3, *, bucket: str, key: str) -> None:
        self._client = client
        self._bucket = bucket
        self._key = key

    def is_stored(self) -> bool:
        """Whether the bucket has it."""
        try:
            self._client.head_object(Bucket=self._bucket, Key=self._key)
        except ClientError as error:
            if error.response["Error"]["Code"] in NOT_THERE:
                return False
            raise
        return True

    def fetch(self, directory: Path) -> None:
        """Unpack it at ``directory``, in one step."""
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".fetch-") as work:
            packed, unpacked = Path(work, "packed"), Path(work, "unpacked")
            self._client.download_file(self._bucket, self._key, str(packed))
            unpacked.mkdir(mode=0o755)
            _tar(["--extract", "--gzip", "--no-same-owner", "--file", str(packed), "--directory", str(unpacked)])
            shutil.rmtree(directory, ignore_errors=True)
            unpacked.rename(directory)

    def store(self, directory: Path) -> None:
        """Put it into the bucket, where S3 shows it when it is whole."""
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".store-") as work:
            packed = Path(work, "packed")
            # Fast rather than small: it stays within the region.
            fast = "--use-compress-program=gzip --fast"
            _tar(["--create", fast, "--file", str(packed), "--directory", str(directory), "."])
            self._client.upload_file(str(packed), self._bucket, self._key)


def _tar(arguments: Sequence[str]) -> None:
    try:
        subprocess.run(
            ["tar", *arguments], check=True, timeout=TAR_TIMEOUT_S, capture_output=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error).encode()
        raise EnginesError("tar failed", f"tar {arguments[0]}: {said.decode(errors='replace')[-300:]}") from error
