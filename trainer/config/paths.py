"""Check the paths on the command line: syntax, and whether they may be in S3."""

import re
from typing import Final

from trainer.config.choices import option_name
from trainer.errors import UsageError
from trainer.s3 import SCHEME

S3_FOLDER: Final = re.compile(r"s3://[^/\s]+(/(?!\.\.?(/|$))[^/\s]+)*/?")
S3_PREFIX: Final = re.compile(r"s3://[^/\s]+(/[^/\s]+)+")


def check_prefix(prefix: str | None) -> None:
    """Raise UsageError unless the prefix is valid for checkpoints' names."""
    if folder_in_s3(prefix) is not None and not S3_PREFIX.fullmatch(prefix or ""):
        raise UsageError(f"--model-prefix must be a path or s3://BUCKET/FOLDER/NAME, got {prefix}")
    if (prefix or "").endswith("/"):
        raise UsageError(f"--model-prefix must end with a name, not with /, got {prefix}")


def check_data_dir(directory: str) -> None:
    """Raise UsageError unless this is a directory or a folder in S3."""
    if directory.startswith(SCHEME) and not S3_FOLDER.fullmatch(directory):
        raise UsageError(f"--data-dir must be a directory or s3://BUCKET/FOLDER, got {directory}")


def check_local(name: str, path: str | None) -> None:
    """Raise UsageError when the path of the setting ``name`` is in S3."""
    if (path or "").startswith(SCHEME):
        raise UsageError(f"{option_name(name)} must be a path on rank 0's machine, got {path}")


def folder_in_s3(prefix: str | None) -> str | None:
    """Return the folder of a prefix in S3; None for a local path."""
    return prefix.rpartition("/")[0] if prefix and prefix.startswith(SCHEME) else None
