"""Download files from a bucket with the ``aws`` command line and this node's role."""

import subprocess
import time
from pathlib import Path

from launcher.errors import LaunchError
from launcher.runner.sync.destination import make_directory
from launcher.sync.request import BUCKET_URL


def fetch(source: str, directory: Path, *, deadline_s: float) -> None:
    """Download everything that differs below `source` into `directory`; LaunchError with the reason of a failure."""
    match = BUCKET_URL.fullmatch(source)
    if match is None:
        raise ValueError(f"not a bucket's prefix: {source!r}")
    bucket, prefix = match[1], f"{match[2]}/" if match[2] else ""
    until = time.monotonic() + deadline_s
    make_directory(directory)
    key_count = ("--max-keys", "1", "--no-paginate", "--query", "KeyCount", "--output", "text")
    # aws s3 sync treats a prefix without objects as an empty directory, and succeeds.
    count = _aws(source, "s3api", "list-objects-v2", "--bucket", bucket, "--prefix", prefix, *key_count, until=until)
    if count.strip() == "0":
        raise LaunchError(f"{source} is empty")
    quiet = ("--only-show-errors", "--no-progress")
    # By default the command keeps a newer file of the same size, whatever its content.
    _aws(source, "s3", "sync", f"s3://{bucket}/{prefix}", str(directory), *quiet, "--exact-timestamps", until=until)


def _aws(source: str, *arguments: str, until: float) -> str:
    try:
        done = subprocess.run(
            ["aws", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=max(1.0, until - time.monotonic()),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise LaunchError(f"{source}: not fetched in time (--sync-timeout)") from error
    except FileNotFoundError as error:
        raise LaunchError("aws: command not found, which nodes need to fetch from S3") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"aws ended with exit code {done.returncode}"]
        raise LaunchError(f"{source}: {lines[-1]}")
    return done.stdout
