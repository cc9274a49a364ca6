"""Define the bucket's record of an open durable job.

The record exists until the job ends or is stopped. Only the master's role may write it, because the next master runs
the command in it.
"""

import json
import re
from dataclasses import asdict, dataclass, replace
from typing import Any

from launcher.errors import LaunchError
from launcher.job_records.records import JobRecord

RECORD_VERSION = 2
JOB_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{7}")
"""Form of the ids from launcher.job_records.records.new_job_id; an id is used as a directory name."""
SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class DurableRecord:
    """Data that a new master needs to restart the job."""

    job: JobRecord
    """The job's own record; its attempt number is that of the last attempt started."""
    arguments: tuple[str, ...]
    """Arguments of ``launch``, including the variables given with ``--env``."""
    umask: int
    files: str | None
    """SHA-256 of the job directory's archive; None if the job synced no directory."""
    short_attempts: int = 0
    """Number of consecutive short attempts, up to the last one (launcher.durable.crash_loop)."""

    def next_attempt(self) -> "DurableRecord":
        """Return the record for another attempt."""
        return replace(self, job=replace(self.job, attempt=self.job.attempt + 1))

    def to_bytes(self) -> bytes:
        """Return the record as JSON."""
        return json.dumps({"version": RECORD_VERSION, **asdict(self)}, indent=2).encode("ascii")

    @classmethod
    def from_bytes(cls, data: bytes) -> "DurableRecord":
        """Parse what `to_bytes` wrote. Raises LaunchError."""
        try:
            values: dict[str, Any] = json.loads(data)
            record = cls(
                job=JobRecord.from_bytes(json.dumps(values["job"]).encode()),
                arguments=tuple(values["arguments"]),
                umask=int(values["umask"]),
                files=values["files"],
                short_attempts=int(values.get("short_attempts", 0)),
            )
            if values["version"] != RECORD_VERSION:
                raise LaunchError(f"durable job's record must have version {RECORD_VERSION}, got {values['version']!r}")
        except (ValueError, KeyError, TypeError) as error:
            raise LaunchError(f"not the record of a durable job: {error}") from error
        if not JOB_ID.fullmatch(record.job.id):
            raise LaunchError(f"durable job's record must have a job's id, got {record.job.id!r}")
        if record.files is not None and not SHA256.fullmatch(record.files):
            raise LaunchError(f"files of a durable job must be named by a SHA-256, got {record.files!r}")
        return record
