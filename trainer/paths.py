"""Which paths of the command line may lead to S3, and how those read."""

import re
from typing import Final

from trainer.choices import option
from trainer.errors import UsageError
from trainer.s3 import SCHEME

S3_FOLDER: Final = re.compile(r"s3://[^/\s]+(/(?!\.\.?(/|$))[^/\s]+)*/?")
S3_PREFIX: Final = re.compile(r"s3://[^/\s]+(/[^/\s]+)+")


def check_prefix(prefix: str | None) -> None:
    """Raise UsageError unless this can be the beginning of the checkpoints' names."""
    if folder_in_s3(prefix) is not None and not S3_PREFIX.fullmatch(prefix or ""):
        raise UsageError(f"--model-prefix must be a path or s3://BUCKET/FOLDER/NAME, got {prefix}")
    if (prefix or "").endswith("/"):
        raise UsageError(f"--model-prefix must end with a name, not with /, got {prefix}")


def check_data_dir(directory: str) -> None:
    """Raise UsageError unless a data set may be there."""
    if directory.startswith(SCHEME) and not S3_FOLDER.fullmatch(directory):
        raise UsageError(f"--data-dir must be a directory or s3://BUCKET/FOLDER, got {directory}")


def check_local(name: str, path: str | None) -> None:
    """Raise UsageError when the path of the setting ``name`` is not on a machine."""
    if (path or "").startswith(SCHEME):
        raise UsageError(f"{option(name)} must be a path on rank 0's machine, got {path}")


def folder_in_s3(prefix: str | None) -> str | None:
    """Return the folder of a prefix that is in S3."""
    return prefix.rpartition("/")[0] if prefix and prefix.startswith(SCHEME) else None
