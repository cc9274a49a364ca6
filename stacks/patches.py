"""Until when AWS patches a Deep Learning AMI, told from the image's name.

Source: the DLAMI support policy table (AWS Deep Learning AMIs Developer Guide), and for PyTorch 2.10 the one of
Deep Learning Containers, both read in November 2026. PyTorch 2.11 to 2.13 have no date there yet.
"""

import re
from collections.abc import Mapping
from datetime import date
from typing import Final

END_OF_PATCH: Final[Mapping[str, date]] = {
    "PyTorch 2.5": date(2025, 11, 24),
    "PyTorch 2.6": date(2026, 1, 29),
    "PyTorch 2.7": date(2026, 4, 23),
    "PyTorch 2.8": date(2026, 8, 6),
    "PyTorch 2.9": date(2026, 10, 15),
    "PyTorch 2.10": date(2027, 1, 21),
    "Ubuntu 22.04": date(2027, 4, 30),
    "Ubuntu 24.04": date(2029, 4, 30),
}
"""The last day of each framework and system version."""

_DEEP_LEARNING: Final = "Deep Learning"
_VERSIONS: Final = re.compile(r"(?:PyTorch|Ubuntu) [0-9]+\.[0-9]+")


def end_of_patch(image_name: str) -> tuple[str, date] | None:
    """What in the image ends first, and when; None for an image that is not AWS's or has no known end."""
    if not image_name.startswith(_DEEP_LEARNING):
        return None
    ends = [(END_OF_PATCH[part], part) for part in _VERSIONS.findall(image_name) if part in END_OF_PATCH]
    return next(((part, last) for last, part in sorted(ends)), None)
