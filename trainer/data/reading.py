"""Reads whole files; whatever is wrong with one is a single line that names it."""

import gzip
import zlib
from pathlib import Path
from typing import Final

from trainer.errors import TrainerError

GZIP: Final = b"\x1f\x8b"
"""How gzip's files start (RFC 1952, 2.3.1)."""


def exists(path: Path) -> bool:
    """Whether there is such a file.

    Raises TrainerError where nobody can tell, as in a directory that may not be entered; Path.exists() differs between
    Pythons there.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise TrainerError(f"cannot read {path}, {error.strerror}") from error
    return True


def read(path: Path) -> bytes:
    """Return the content, unpacked where it is gzipped; gzip's checksum finds what a disk has damaged."""
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content.startswith(GZIP) else content
    except EOFError as error:
        raise TrainerError(f"{path} is truncated") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise TrainerError(f"{path} is damaged, {str(error).lower()}") from error
    except OSError as error:
        raise TrainerError(f"cannot read {path}, {error.strerror}") from error
