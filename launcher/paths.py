"""Where the nodes keep what processes say."""

JOBS_DIR = ".local/state/deeplearning/jobs"
"""Logs, below each node's home directory; where, see the XDG Base Directory Specification (XDG_STATE_HOME)."""
LOCK_FILE = "job.lock"
"""In a job's directory where its launcher runs; see launcher.history.lock."""


def log_name(process: str) -> str:
    """Name of the file that keeps what a process says."""
    return f"{process.replace(' ', '-')}.log"
