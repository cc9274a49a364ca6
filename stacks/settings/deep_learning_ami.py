"""Until when AWS patches a Deep Learning AMI, told from the image's name.

Source: the DLAMI support policy table (AWS Deep Learning AMIs Developer Guide), and for PyTorch 2.10 the one of
Deep Learning Containers, both read in November 2026. PyTorch 2.11 to 2.13 have no date there yet.
"""

import re
from collections.abc import Mapping
from datetime import date
from typing import Final

SSM_PATH: Final = "/aws/service/deeplearning/ami/x86_64"
"""Under it SSM has a parameter for each family of Deep Learning AMIs (AWS Deep Learning AMIs Developer Guide)."""
ROOT_DEVICE: Final = "/dev/sda1"
"""Ubuntu's, the only one that the nodes run; Amazon Linux has another."""
OPEN_DRIVER: Final = "oss-nvidia-driver-gpu-pytorch-2.12-ubuntu-24.04"
"""PyTorch with the open NVIDIA driver: Turing and newer; PyTorch runs without a GPU too."""
IMAGE_GIB: Final = {OPEN_DRIVER: 30}
"""Least root volume of each family. AWS publishes no sizes, and they grow with the releases: this is
what users saw in 2026. What an image needs today, ``dlcluster preflight`` asks EC2."""
LISTED: Final = {
    OPEN_DRIVER: frozenset({"g4dn", "g5", "g6", "gr6", "g6e", "p4d", "p4de", "p5", "p5e", "p5en", "p6-b200"})
}
"""The GPU types that AWS lists for each family (its release notes of 2026-08-22)."""
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
