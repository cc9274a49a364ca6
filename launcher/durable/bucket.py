"""Store durable jobs in the cluster's bucket below jobs/CLUSTER/, as durable/JOB.json and files/SHA256.tar.gz."""

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from bootstrap.contract import JOBS_PREFIX, MASTER, NODE_CONFIG
from launcher.durable import archive
from launcher.durable.record import DurableRecord
from launcher.errors import LaunchError
from launcher.sync.manifest import Manifest

VENDOR = Path(__file__).resolve().parents[2] / "vendor"
"""Directory of the libraries that the release bundles."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Location of a cluster's jobs."""

    bucket: str
    cluster: str
    region: str

    @property
    def prefix(self) -> str:
        """Return the prefix of all keys of the cluster's jobs."""
        return f"{JOBS_PREFIX}{self.cluster}/"


def read_place(config: Path = Path(NODE_CONFIG)) -> Place:
    """Return the location of this cluster's jobs. Raises LaunchError unless this machine is a cluster's master."""
    try:
        values = json.loads(config.read_text())
    except (OSError, ValueError) as error:
        raise LaunchError("--durable is for a cluster's master: this machine is no node") from error
    if values["node_type"] != MASTER:
        raise LaunchError("--durable is for a cluster's master: workers have no access to stored jobs")
    return Place(bucket=values["bucket"], cluster=values["cluster_name"], region=values["region"])


class DeniedError(LaunchError):
    """S3 denies an object."""


class Unread(NamedTuple):
    """A stored job that cannot be read."""

    job_id: str
    reason: str
    is_denied: bool
    """True if S3 denies the record: the next time it may not."""


class JobBucket:
    """The durable jobs of one cluster."""

    def __init__(self, client: Any, place: Place) -> None:
        self._client = client
        self._place = place

    def put(self, record: DurableRecord) -> None:
        """Store a job's record."""
        with _reported("store the job"):
            self._client.put_object(Bucket=self._place.bucket, Key=self._key(record.job.id), Body=record.to_bytes())

    def remove(self, job_id: str) -> None:
        """Delete a job's record; from now on no master restarts it."""
        with _reported("delete the job's record"):
            self._client.delete_object(Bucket=self._place.bucket, Key=self._key(job_id))

    def all(self) -> tuple[list[DurableRecord], list[Unread]]:
        """Return the stored jobs, and those that cannot be read."""
        records, unread = [], []
        with _reported("list the stored jobs"):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._place.bucket, Prefix=f"{self._place.prefix}durable/"
            )
            for key in [found["Key"] for page in pages for found in page.get("Contents", ())]:
                try:
                    records.append(DurableRecord.from_bytes(self._read(key)))
                except LaunchError as error:
                    job_id, is_denied = Path(key).stem, isinstance(error, DeniedError)
                    unread.append(Unread(job_id, f"s3://{self._place.bucket}/{key}: {error}", is_denied=is_denied))
        return records, unread

    def get(self, job_id: str) -> DurableRecord | None:
        """Return a stored job; None if it is over. Raises LaunchError."""
        from botocore.exceptions import ClientError

        with _reported("read the stored job"):
            try:
                return DurableRecord.from_bytes(self._read(self._key(job_id)))
            except ClientError as error:
                if error.response["Error"]["Code"] != "NoSuchKey":
                    raise
        return None

    def _read(self, key: str) -> bytes:
        """Return an object. Raises DeniedError if S3 denies this one: the key that encrypts it may be another."""
        from botocore.exceptions import ClientError

        try:
            return bytes(self._client.get_object(Bucket=self._place.bucket, Key=key)["Body"].read())
        except ClientError as error:
            if error.response["Error"]["Code"] != "AccessDenied":
                raise
            raise DeniedError(" ".join(str(error).split())) from error

    def put_files(self, source: Path, manifest: Manifest) -> str:
        """Store a directory's files unless the bucket already has them; return their archive's SHA-256."""
        with tempfile.TemporaryDirectory(prefix="launch-durable-") as work:
            packed = Path(work, "files")
            sha256 = archive.pack(source, manifest, packed)
            with _reported("store the job's files"):
                found = self._client.list_objects_v2(Bucket=self._place.bucket, Prefix=self._files(sha256), MaxKeys=1)
                if not found["KeyCount"]:
                    self._client.upload_file(str(packed), self._place.bucket, self._files(sha256))
        return sha256

    def fetch_files(self, sha256: str, directory: Path) -> None:
        """Unpack a stored archive to the new `directory`. Its parent is missing if the job has been stopped."""
        with tempfile.TemporaryDirectory(prefix="launch-durable-") as work:
            packed = Path(work, "files")
            with _reported("fetch the job's files"):
                self._client.download_file(self._place.bucket, self._files(sha256), str(packed))
            archive.unpack(packed, directory, sha256=sha256)

    def delete_files(self, *, before: datetime) -> int:
        """Delete the archives that were uploaded before that and that no stored job needs; return their number."""
        records, unread = self.all()
        if unread:
            raise LaunchError(f"the files of some jobs are unknown: {unread[0].reason}")
        needed = {self._files(record.files) for record in records if record.files is not None}
        count = 0
        with _reported("delete old files"):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._place.bucket, Prefix=f"{self._place.prefix}files/"
            )
            for page in pages:
                for found in page.get("Contents", ()):
                    if found["LastModified"] < before and found["Key"] not in needed:
                        self._client.delete_object(Bucket=self._place.bucket, Key=found["Key"])
                        count += 1
        return count

    def _key(self, job_id: str) -> str:
        return f"{self._place.prefix}durable/{job_id}.json"

    def _files(self, sha256: str) -> str:
        return f"{self._place.prefix}files/{sha256}.tar.gz"


@contextmanager
def _reported(action: str) -> Iterator[None]:
    """Turn a failed call to S3 into a LaunchError."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (Boto3Error, BotoCoreError, ClientError) as error:
        raise LaunchError(f"cannot {action}: {' '.join(str(error).split())}") from error


def open_bucket() -> JobBucket:
    """Connect to the bucket of this master's cluster. Raises LaunchError."""
    place = read_place()
    if VENDOR.is_dir() and str(VENDOR) not in sys.path:
        sys.path.insert(1, str(VENDOR))
    import boto3
    from botocore.config import Config

    retries = Config(retries={"mode": "standard", "total_max_attempts": 4}, connect_timeout=5, read_timeout=30)
    return JobBucket(boto3.session.Session(region_name=place.region).client("s3", config=retries), place)
