"""Signal from the control plane to the data plane that something may have changed.

The signal is a file that grows by a byte with each change, so that the data plane need not poll the control plane.
"""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

FILE: Final = "changes"
AT_LEAST_EVERY_S: Final = 10.0
"""Longest time between checks without a signal, because a change may go unnoticed."""
_UNRELATED_SERVICES: Final = frozenset({"dynamodb", "iam", "logs", "s3", "ssm", "ssmmessages", "sts"})
"""Services that never change an instance, route or security group."""
_READS: Final = re.compile(rb"(?:^|&)Action=(?:Describe|Get|List)")
_JSON_READS: Final = re.compile(r"\.(?:Describe|Get|List)")


def may_change(service: str, body: bytes, *, method: str = "POST", target: str = "") -> bool:
    """Return True if a request may change what the data plane maintains, including in case of doubt.

    ``target`` is the header X-Amz-Target, with which a JSON request names its action.
    """
    reads = method == "GET" or _READS.search(body) or _JSON_READS.search(target)
    return service not in _UNRELATED_SERVICES and not reads


class ChangeWriter:
    """Writes the signal, for the control plane. Raises OSError if the file cannot be written."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.touch()

    def signal(self) -> None:
        with self._file.open("ab") as file:
            file.write(b".")


class ChangeReader:
    """Reads the signal, for the data plane."""

    def __init__(self, file: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._clock = clock
        self._seen_size = -1
        self._next_look = 0.0

    def is_due(self) -> bool:
        """Return True after a change, and occasionally otherwise.

        Call it before reading, so that no change is missed.
        """
        size, now = self._size(), self._clock()
        if size == self._seen_size and now < self._next_look:
            return False
        self._seen_size, self._next_look = size, now + AT_LEAST_EVERY_S
        return True

    def _size(self) -> int:
        try:
            return self._file.stat().st_size
        except FileNotFoundError:
            return 0
