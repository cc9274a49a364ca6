"""Recognize answers with which S3 or KMS asks for fewer requests, and pause before the next attempt.

A throttled request uses up no attempt: many nodes wait for their turn, until the launcher's deadline ends this process.
"""

import os
import random
import time
from typing import Final

MAX_BACKOFF_S: Final = 30.0
"""Longest back-off after a throttled request, in seconds."""
STATUSES: Final = frozenset({429, 503})
CODES: Final = frozenset(
    {
        "BandwidthLimitExceeded",
        "EC2ThrottledException",
        "KMS.ThrottlingException",
        "LimitExceededException",
        "PriorRequestNotComplete",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "TransactionInProgressException",
    }
)
"""Statuses and codes that ask for fewer requests: those of botocore's retries/standard.py, and of KMS through S3."""
_REPORTED: Final[set[str]] = set()


def is_throttled(status: int, code: str) -> bool:
    """Return True if an answer asks for fewer requests."""
    return status in STATUSES or code in CODES


def report(reason: str) -> None:
    """Write why requests wait to standard error, once per process: at its deadline, the launcher repeats that line."""
    if reason not in _REPORTED:
        _REPORTED.add(reason)
        # In one call, because other processes write to the same pipe.
        os.write(2, f"S3 asks for fewer requests: {reason}\n".encode(errors="replace"))


def pause(attempts: int, *, longest_s: float = MAX_BACKOFF_S) -> None:
    """Wait longer after each attempt, by a part at random, so that the nodes do not ask all at once."""
    time.sleep(random.uniform(0.5, 1.0) * min(longest_s, 0.1 * 3 ** min(attempts, 10)))  # noqa: S311  (no secret)
