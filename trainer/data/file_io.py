"""Read whole files, and turn every error into a line that names the file."""

import gzip
import zlib
from pathlib import Path
from typing import Final

from trainer.errors import TrainerError

GZIP: Final = b"\x1f\x8b"
"""First bytes of a gzip file (RFC 1952, 2.3.1)."""


def exists(path: Path) -> bool:
    """Return True if the file exists.

    Raises TrainerError if the system cannot tell, as in a directory without permission, where Path.exists() differs
    between Python versions.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise TrainerError(f"cannot read {path}: {error.strerror}") from error
    return True


def read(path: Path) -> bytes:
    """Return the content, decompressed if it is gzipped; gzip's checksum detects damage."""
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content.startswith(GZIP) else content
    except EOFError as error:
        raise TrainerError(f"{path} is truncated") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise TrainerError(f"{path} is damaged, {str(error).lower()}") from error
    except OSError as error:
        raise TrainerError(f"cannot read {path}: {error.strerror}") from error
