"""Fetch the archive of the user's setup from S3, check its hash, and unpack the files that it may contain."""

import hashlib
import io
import logging
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from bootstrap.atomic_file import Permissions, write_file
from bootstrap.contract import SETUP_REQUIREMENTS, SETUP_SCRIPT
from bootstrap.errors import SetupError

log = logging.getLogger(__name__)

RETRY_S: Final = 3.0
"""Seconds between attempts to fetch the archive, because the node's role may be younger than the node."""
MODES: Final = {SETUP_SCRIPT: 0o755, SETUP_REQUIREMENTS: 0o644}
"""Modes of the files that an archive may contain."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SetupSource:
    """Location, hash and deadline of a setup's archive."""

    url: str
    """``s3://BUCKET/KEY``."""
    sha256: str
    timeout_s: float

    @property
    def location(self) -> tuple[str, str]:
        """Return bucket and key."""
        bucket, _, key = self.url.removeprefix("s3://").partition("/")
        return bucket, key


def fetch(
    source: SetupSource,
    *,
    read: Callable[[str, str], bytes],
    deadline: float,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bytes:
    """Return the archive. Raises SetupError at the deadline or if the hash is wrong.

    ``read`` returns an object of a bucket. The hash comes with the node's configuration, so write access to the bucket
    does not allow choosing what root runs.
    """
    while True:
        try:
            content = read(*source.location)
            break
        except (BotoCoreError, ClientError) as error:
            if monotonic() + RETRY_S >= deadline:
                raise SetupError("cannot fetch it from S3", f"cannot fetch {source.url}: {error}") from error
            log.warning("cannot fetch %s yet: %s", source.url, error)
            sleep(RETRY_S)
    actual_sha256 = hashlib.sha256(content).hexdigest()
    if actual_sha256 != source.sha256:
        raise SetupError("wrong hash", f"SHA-256 of {source.url} must be {source.sha256}, got {actual_sha256}")
    return content


def unpack(content: bytes, directory: Path) -> None:
    """Write the archive's files to the directory."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for name in archive.namelist():
            if name not in MODES:
                raise SetupError("bad archive", f"setup must hold only {', '.join(MODES)}, got {name!r}")
            text = archive.read(name).decode("utf-8", "surrogateescape")
            write_file(directory / name, text, Permissions(mode=MODES[name]))
