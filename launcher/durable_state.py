"""Tell which durable jobs are open on this master: a directory for each, which launcher.durable fills.

``launch list`` and ``launch stop`` need no more of a durable job, and no call to AWS.
"""

from pathlib import Path

DIRECTORY = ".local/state/deeplearning/durable"
RECORD = "record.json"
DENIED = "denied.json"
"""What is known of a job whose record S3 denies; the service tries again to read it."""
ENDED = "ended"
"""Marks a job that is over or stopped, and whose record in the bucket is still there."""


def directory_of(job_id: str) -> Path:
    """Return the directory of one job."""
    return Path.home() / DIRECTORY / job_id


def is_open(job_id: str) -> bool:
    """Return True if the job is neither over nor stopped."""
    directory = directory_of(job_id)
    return (directory / RECORD).exists() and not (directory / ENDED).exists()


def is_denied(job_id: str) -> bool:
    """Return True if the job's record cannot be read, and nobody has stopped the job."""
    directory = directory_of(job_id)
    return (directory / DENIED).exists() and not any((directory / name).exists() for name in (RECORD, ENDED))


def mark_ended(job_id: str) -> None:
    """Mark a job as over or stopped: nothing starts it again, and the service deletes its record. Raises OSError."""
    if directory_of(job_id).exists():
        (directory_of(job_id) / ENDED).touch(mode=0o600)
