"""What the control plane tells the data plane: that what exists may have changed.

A file that grows by a byte with each change, so that nobody needs to ask the control plane all the time.
"""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

FILE: Final = "changes"
AT_LEAST_EVERY_S: Final = 10.0
"""Between two looks when no change is told: one may come that nobody knows of."""
_ELSEWHERE: Final = frozenset({"dynamodb", "iam", "logs", "s3", "ssm", "sts"})
"""Services by which no instance, route or security group changes."""
_READS: Final = re.compile(rb"(?:^|&)Action=(?:Describe|Get|List)")


def may_change(service: str, body: bytes) -> bool:
    """Whether a request can change what the data plane is to make true; in doubt it can."""
    return service not in _ELSEWHERE and not _READS.search(body)


class Teller:
    """The control plane's end. Raises OSError when the file cannot be written."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.touch()

    def tell(self) -> None:
        with self._file.open("ab") as file:
            file.write(b".")


class Listener:
    """The data plane's end."""

    def __init__(self, file: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._clock = clock
        self._heard = -1
        self._next = 0.0

    def is_time(self) -> bool:
        """Whether to look: after a change, and now and then. Asked before the look, so that none is missed."""
        told, now = self._told(), self._clock()
        if told == self._heard and now < self._next:
            return False
        self._heard, self._next = told, now + AT_LEAST_EVERY_S
        return True

    def _told(self) -> int:
        try:
            return self._file.stat().st_size
        except FileNotFoundError:
            return 0
