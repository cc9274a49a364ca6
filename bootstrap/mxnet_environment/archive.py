"""Store an MXNet environment in the cluster's bucket as one archive, and download it on other nodes."""

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from botocore.exceptions import ClientError

from bootstrap.errors import MxnetEnvironmentError
from bootstrap.mxnet_environment.recipe import OUTWARD_LINKS
from bootstrap.mxnet_environment.unpack import unpack

TAR_TIMEOUT_S: Final = 600
CHUNK: Final = 1 << 20
NO_OBJECT: Final = frozenset({"404", "NoSuchKey", "NotFound"})
"""S3's error codes for a missing object."""


class S3(Protocol):
    """The methods of boto3's client that are used here."""

    def head_object(self, *, Bucket: str, Key: str) -> Any:  # noqa: N803  (boto3's own parameter names)
        """Describe an object. Raises ClientError 404 if there is none."""

    def get_object(self, *, Bucket: str, Key: str) -> Any:  # noqa: N803  (boto3's own parameter names)
        """Open an object; its Body is a stream."""

    def upload_file(self, Filename: str, Bucket: str, Key: str) -> None:  # noqa: N803  (boto3's own parameter names)
        """Store a file, in parts if it is large."""


class WrongHashError(MxnetEnvironmentError):
    """The archive in the bucket is not the one that the master stored."""


class Archive:
    """Stores and downloads the archive of one environment."""

    def __init__(self, client: S3, *, bucket: str, key: str) -> None:
        self._client = client
        self._bucket = bucket
        self._key = key

    def is_stored(self) -> bool:
        """Return True if the bucket has the archive."""
        try:
            self._client.head_object(Bucket=self._bucket, Key=self._key)
        except ClientError as error:
            if error.response["Error"]["Code"] in NO_OBJECT:
                return False
            raise
        return True

    def fetch(self, directory: Path, *, sha256: str) -> None:
        """Unpack the archive and rename it to ``directory``. Raises WrongHashError before unpacking."""
        directory.parent.mkdir(parents=True, exist_ok=True)
        # No other user can write to a temporary directory, so the unpacked bytes are the hashed ones.
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".fetch-") as work:
            packed, unpacked = Path(work, "packed"), Path(work, "unpacked")
            actual_sha256 = self._download(packed)
            if actual_sha256 != sha256:
                raise WrongHashError("wrong hash", f"SHA-256 of {self._key} must be {sha256}, got {actual_sha256}")
            unpacked.mkdir(mode=0o755)
            unpack(packed, unpacked)
            for name, target in OUTWARD_LINKS.items():
                Path(unpacked, name).parent.mkdir(exist_ok=True)
                Path(unpacked, name).symlink_to(target)
            shutil.rmtree(directory, ignore_errors=True)
            unpacked.rename(directory)

    def _download(self, file: Path) -> str:
        """Write the object to a file; return its SHA-256."""
        digest = hashlib.sha256()
        body = self._client.get_object(Bucket=self._bucket, Key=self._key)["Body"]
        with file.open("wb") as out:
            for chunk in body.iter_chunks(CHUNK):
                digest.update(chunk)
                out.write(chunk)
        return digest.hexdigest()

    def store(self, directory: Path) -> str:
        """Pack the environment and upload it; return the archive's SHA-256. S3 shows only complete objects."""
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".store-") as work:
            packed = Path(work, "packed")
            # Prefer speed to size: the archive stays within the region.
            fast = "--use-compress-program=gzip --fast"
            outward = [f"--exclude=./{name}" for name in OUTWARD_LINKS]
            plain = ["--hard-dereference", "--owner=0", "--group=0", "--numeric-owner", "--anchored", *outward]
            _tar(["--create", fast, *plain, "--file", str(packed), "--directory", str(directory), "."])
            sha256 = _sha256(packed)
            self._client.upload_file(str(packed), self._bucket, self._key)
            return sha256


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while chunk := content.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _tar(arguments: Sequence[str]) -> None:
    try:
        subprocess.run(
            ["tar", *arguments], check=True, timeout=TAR_TIMEOUT_S, capture_output=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stderr", None) or str(error).encode()
        raise MxnetEnvironmentError(
            "tar failed", f"tar {arguments[0]}: {output.decode(errors='replace')[-300:]}"
        ) from error
