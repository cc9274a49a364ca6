"""Validate numbers and names on the command line."""

import re
import reprlib

from bootstrap.contract import JOB_NAME_FORM, JOB_NAME_PATTERN
from launcher.errors import UsageError

MAX_DIGITS = 9
"""Largest number of digits that is accepted; no count here needs more."""


def whole_number(text: str, *, name: str, minimum: int = 1, maximum: int | None = None) -> int:
    """Parse `text`; UsageError says what `name` must be."""
    allowed = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
    # int() accepts more than digits, and rejects thousands of them.
    if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS:
        number = int(text)
        if number >= minimum and (maximum is None or number <= maximum):
            return number
    raise UsageError(f"{name} must be a whole number {allowed}, got {reprlib.repr(text)}")


def job_name(text: str) -> str:
    """Return `text` if it can name a job; UsageError says what it must be."""
    if re.fullmatch(JOB_NAME_PATTERN, text):
        return text
    raise UsageError(f"--name must be {JOB_NAME_FORM}, got {reprlib.repr(text)}")
