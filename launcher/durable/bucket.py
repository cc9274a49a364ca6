"""Store durable jobs in the cluster's bucket below jobs/CLUSTER/, as durable/JOB.json and files/SHA256.tar.gz."""

import json
import sys
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from bootstrap.contract import JOBS_PREFIX, MASTER, NODE_CONFIG_FILE
from launcher.durable import archive
from launcher.durable.record import DurableRecord
from launcher.errors import LaunchError
from launcher.paths import VENDOR
from launcher.sync.manifest import Manifest

DENIALS = ("AccessDenied", "InvalidObjectState")
"""Codes with which S3 refuses a single object: a policy or a grant forbids it, or it is in Glacier."""
KMS_ERRORS = "KMS."
"""Prefix of the codes for an object whose key cannot be used, such as KMS.DisabledException."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketLocation:
    """Location of a cluster's jobs."""

    bucket: str
    cluster: str
    region: str

    @property
    def prefix(self) -> str:
        """Return the prefix of all keys of the cluster's jobs."""
        return f"{JOBS_PREFIX}{self.cluster}/"


def read_bucket_location(config: Path = Path(NODE_CONFIG_FILE)) -> BucketLocation:
    """Return the location of this cluster's jobs. Raises LaunchError unless this machine is a cluster's master."""
    try:
        values = json.loads(config.read_text())
    except (OSError, ValueError) as error:
        raise LaunchError("--durable requires a cluster's master: this machine is not a node") from error
    if values["node_type"] != MASTER:
        raise LaunchError("--durable requires a cluster's master: workers have no access to stored jobs")
    return BucketLocation(bucket=values["bucket"], cluster=values["cluster_name"], region=values["region"])


class UnreadableError(LaunchError):
    """One record cannot be read now; others may be readable."""


class UnreadableJob(NamedTuple):
    """A stored job that cannot be read."""

    job_id: str
    reason: str


class JobBucket:
    """The durable jobs of one cluster."""

    def __init__(self, client: Any, location: BucketLocation) -> None:
        self._client = client
        self._location = location

    def put(self, record: DurableRecord) -> None:
        """Store a job's record."""
        with _reported("store the job"):
            self._client.put_object(Bucket=self._location.bucket, Key=self._key(record.job.id), Body=record.to_bytes())

    def remove(self, job_id: str) -> None:
        """Delete a job's record; from now on no master restarts it."""
        with _reported("delete the job's record"):
            self._client.delete_object(Bucket=self._location.bucket, Key=self._key(job_id))

    def read_records(self) -> tuple[list[DurableRecord], list[UnreadableJob]]:
        """Return the records of the stored jobs, and the jobs whose records cannot be read."""
        records, unreadable = [], []
        with _reported("list the stored jobs"):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._location.bucket, Prefix=f"{self._location.prefix}durable/"
            )
            for key in [item["Key"] for page in pages for item in page.get("Contents", ())]:
                try:
                    if (record := self._read(key)) is not None:
                        records.append(record)
                except UnreadableError as error:
                    unreadable.append(UnreadableJob(Path(key).stem, f"s3://{self._location.bucket}/{key}: {error}"))
        return records, unreadable

    def get(self, job_id: str) -> DurableRecord | None:
        """Return a stored job; None if it is over. Raises UnreadableError for this record, else LaunchError."""
        with _reported("read the stored job"):
            return self._read(self._key(job_id))

    def _read(self, key: str) -> DurableRecord | None:
        """Return a stored job; None if the job is over. Raises UnreadableError if only this job is affected."""
        from botocore.exceptions import ClientError

        try:
            data = bytes(self._client.get_object(Bucket=self._location.bucket, Key=key)["Body"].read())
            return DurableRecord.from_bytes(data)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code == "NoSuchKey":
                return None
            if code in DENIALS or code.startswith(KMS_ERRORS):
                raise UnreadableError(" ".join(str(error).split())) from error
            raise
        except LaunchError as error:
            raise UnreadableError(str(error)) from error

    def put_files(self, source: Path, manifest: Manifest) -> str:
        """Store a directory's files unless the bucket already has them; return their archive's SHA-256."""
        with tempfile.TemporaryDirectory(prefix="launch-durable-") as work:
            packed = Path(work, "files")
            sha256 = archive.pack(source, manifest, packed)
            with _reported("store the job's files"):
                listing = self._client.list_objects_v2(
                    Bucket=self._location.bucket, Prefix=self._files(sha256), MaxKeys=1
                )
                if not listing["KeyCount"]:
                    self._client.upload_file(str(packed), self._location.bucket, self._files(sha256))
        return sha256

    def fetch_files(self, sha256: str, directory: Path) -> None:
        """Unpack a stored archive to the new `directory`. Its parent is missing if the job has been stopped."""
        with tempfile.TemporaryDirectory(prefix="launch-durable-") as work:
            packed = Path(work, "files")
            with _reported("fetch the job's files"):
                self._client.download_file(self._location.bucket, self._files(sha256), str(packed))
            archive.unpack(packed, directory, sha256=sha256)

    def delete_files(self, *, before: datetime, kept: Collection[str] = ()) -> int:
        """Delete older archives that no stored job needs, except those in `kept`; return how many were deleted."""
        records, unreadable = self.read_records()
        if unreadable:
            raise LaunchError(f"the files of some jobs are unknown: {unreadable[0].reason}")
        needed = {self._files(sha256) for sha256 in {*kept, *(record.files for record in records)} if sha256}
        count, errors = 0, []
        with _reported("delete old files"):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._location.bucket, Prefix=f"{self._location.prefix}files/"
            )
            for page in pages:
                old_keys = [item["Key"] for item in page.get("Contents", ()) if item["LastModified"] < before]
                # A page has at most a thousand objects, as many as one call deletes.
                if objects := [{"Key": key} for key in old_keys if key not in needed]:
                    deletion = {"Objects": objects, "Quiet": True}
                    answer = self._client.delete_objects(Bucket=self._location.bucket, Delete=deletion)
                    count += len(objects)
                    errors += answer.get("Errors", ())
        if errors:
            first = f"s3://{self._location.bucket}/{errors[0]['Key']}: {errors[0]['Code']}"
            raise LaunchError(f"{len(errors)} of {count} old archives cannot be deleted: {first}")
        return count

    def _key(self, job_id: str) -> str:
        return f"{self._location.prefix}durable/{job_id}.json"

    def _files(self, sha256: str) -> str:
        return f"{self._location.prefix}files/{sha256}.tar.gz"


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
    location = read_bucket_location()
    if Path(VENDOR).is_dir() and VENDOR not in sys.path:
        sys.path.insert(1, VENDOR)
    import boto3
    from botocore.config import Config

    retries = Config(retries={"mode": "standard", "total_max_attempts": 4}, connect_timeout=5, read_timeout=30)
    return JobBucket(boto3.session.Session(region_name=location.region).client("s3", config=retries), location)
