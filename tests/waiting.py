"""Wait in tests for a condition that another process brings about."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], what: str, *, timeout_s: float, every_s: float = 0.1) -> None:
    """Poll until the condition holds; fail with ``what`` when it does not hold in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s:.0f} s for {what}"
        time.sleep(every_s)
