"""Define paths and names that must import quickly in the runner."""

JOBS_DIR = ".local/state/deeplearning/jobs"
"""Directory of logs below each node's home directory, after the XDG Base Directory Specification (XDG_STATE_HOME)."""
LOCK_FILE = "job.lock"
"""Lock file in a job's directory on its launcher's machine; see launcher.job_records.lock."""
JOB_LOG = "job.log"
"""Log of a detached job in its directory, beside those of its processes."""
SSH_AGENT_VARIABLE = "SSH_AUTH_SOCK"
"""Variable with the socket of the SSH agent (ssh-agent(1))."""

VENDOR = f"{__file__.rpartition('/launcher/')[0]}/vendor"
"""Directory of the libraries that the release bundles."""


def log_name(process: str) -> str:
    """Return the name of the file that keeps a process's output."""
    return f"{process.replace(' ', '-')}.log"
