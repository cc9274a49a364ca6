"""Numbers that people type."""

import reprlib

from launcher.errors import UsageError

MOST_DIGITS = 9
"""Nothing that people count here needs more."""


def whole_number(text: str, *, name: str, least: int = 1, most: int | None = None) -> int:
    """The number that `text` is; UsageError says what `name` must be."""
    allowed = f"of at least {least}" if most is None else f"from {least} to {most}"
    # int() takes more than digits, and refuses thousands of them.
    if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS:
        number = int(text)
        if number >= least and (most is None or number <= most):
            return number
    raise UsageError(f"{name} must be a whole number {allowed}, got {reprlib.repr(text)}")
