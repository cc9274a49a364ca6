"""Environments in the cluster's bucket: there once, whole, for every node that comes later."""

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from botocore.exceptions import ClientError

from bootstrap.errors import FrameworkError
from bootstrap.frameworks.recipe import OUTWARD_LINKS
from bootstrap.frameworks.unpack import unpack

TAR_TIMEOUT_S: Final = 600
CHUNK: Final = 1 << 20
NOT_THERE: Final = frozenset({"404", "NoSuchKey", "NotFound"})


class S3(Protocol):
    """What is asked of boto3's client."""

    def head_object(self, *, Bucket: str, Key: str) -> Any:  # noqa: N803  (the API's own names)
        """Describe an object; ClientError 404 where there is none."""

    def get_object(self, *, Bucket: str, Key: str) -> Any:  # noqa: N803  (as above)
        """Open an object; its Body is read piece by piece."""

    def upload_file(self, Filename: str, Bucket: str, Key: str) -> None:  # noqa: N803  (as above)
        """Store a file, in parts when it is large."""


class WrongHashError(FrameworkError):
    """What the bucket has is not what the master has put there."""


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

    def fetch(self, directory: Path, *, sha256: str) -> None:
        """Unpack it at ``directory``, in one step, if it has this hash. Raises WrongHashError before that."""
        directory.parent.mkdir(parents=True, exist_ok=True)
        # Nobody else can look into a temporary directory: what is hashed is what is unpacked.
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".fetch-") as work:
            packed, unpacked = Path(work, "packed"), Path(work, "unpacked")
            found = self._download(packed)
            if found != sha256:
                raise WrongHashError("wrong hash", f"SHA-256 of {self._key} must be {sha256}, got {found}")
            unpacked.mkdir(mode=0o755)
            unpack(packed, unpacked)
            for name, target in OUTWARD_LINKS.items():
                Path(unpacked, name).parent.mkdir(exist_ok=True)
                Path(unpacked, name).symlink_to(target)
            shutil.rmtree(directory, ignore_errors=True)
            unpacked.rename(directory)

    def _download(self, file: Path) -> str:
        """Write the object to a file; return the hash of what was written."""
        digest = hashlib.sha256()
        body = self._client.get_object(Bucket=self._bucket, Key=self._key)["Body"]
        with file.open("wb") as out:
            for chunk in body.iter_chunks(CHUNK):
                digest.update(chunk)
                out.write(chunk)
        return digest.hexdigest()

    def store(self, directory: Path) -> str:
        """Put it into the bucket, where S3 shows it when it is whole; return its hash."""
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".store-") as work:
            packed = Path(work, "packed")
            # Fast rather than small: it stays within the region.
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
        said = getattr(error, "stderr", None) or str(error).encode()
        raise FrameworkError("tar failed", f"tar {arguments[0]}: {said.decode(errors='replace')[-300:]}") from error
