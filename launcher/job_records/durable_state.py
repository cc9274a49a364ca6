"""Find this master's open durable jobs: launcher.durable creates a directory for each.

``launch list`` and ``launch stop`` need nothing else about a durable job, and make no call to AWS.
"""

from pathlib import Path

DURABLE_DIR = ".local/state/deeplearning/durable"
DURABLE_RECORD_FILE = "record.json"
UNREADABLE_FILE = "unreadable.json"
"""File that lists a job whose record cannot be read; the service reads the record again later."""
ENDED_FILE = "ended"
"""File that marks a job as ended or stopped while its record is still in the bucket."""


def durable_directory(job_id: str) -> Path:
    """Return the directory of one job."""
    return Path.home() / DURABLE_DIR / job_id


def is_open(job_id: str) -> bool:
    """Return True if the job is neither over nor stopped."""
    directory = durable_directory(job_id)
    return (directory / DURABLE_RECORD_FILE).exists() and not (directory / ENDED_FILE).exists()


def is_unreadable(job_id: str) -> bool:
    """Return True if the job's record cannot be read, and nobody has stopped the job."""
    directory = durable_directory(job_id)
    return (directory / UNREADABLE_FILE).exists() and not any(
        (directory / name).exists() for name in (DURABLE_RECORD_FILE, ENDED_FILE)
    )


def mark_ended(job_id: str) -> None:
    """Mark a job as ended or stopped, so that nothing restarts it and the service deletes its record.

    Raises OSError.
    """
    if durable_directory(job_id).exists():
        (durable_directory(job_id) / ENDED_FILE).touch(mode=0o600)
