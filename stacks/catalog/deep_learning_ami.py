"""List the Deep Learning AMIs that clusters use, their instance types, and the dates on which their patches end.

Source of the dates: the DLAMI support policy table (AWS Deep Learning AMIs Developer Guide), and for PyTorch 2.10 the
table of Deep Learning Containers, both read in November 2026. PyTorch 2.11 to 2.13 have no date there yet.
"""

import re
from collections.abc import Mapping
from datetime import date
from typing import Final

SSM_PATH: Final = "/aws/service/deeplearning/ami/x86_64"
"""Path of the SSM parameters, one for each family of Deep Learning AMIs (AWS Deep Learning AMIs Developer Guide)."""
ROOT_DEVICE: Final = "/dev/sda1"
"""Root device of Ubuntu, the only system that nodes run; Amazon Linux has another."""
DEFAULT_AMI_FAMILY: Final = "oss-nvidia-driver-gpu-pytorch-2.12-ubuntu-24.04"
"""Family with PyTorch and the open NVIDIA driver, for Turing and newer GPUs; it also runs on CPU types."""
IMAGE_GIB: Final = {DEFAULT_AMI_FAMILY: 30}
"""Smallest root volume of each family, in GiB, as observed in 2026: AWS publishes no sizes, and they grow with the
releases. ``dlcluster preflight`` asks EC2 for the current size."""
GPU_FAMILIES_BY_AMI: Final = {
    DEFAULT_AMI_FAMILY: frozenset({"g4dn", "g5", "g6", "gr6", "g6e", "p4d", "p4de", "p5", "p5e", "p5en", "p6-b200"})
}
"""GPU instance families that AWS lists for each AMI family (release notes of 2026-08-22)."""
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
"""Last day on which AWS patches images with this framework or system version."""

_DEEP_LEARNING: Final = "Deep Learning"
_VERSIONS: Final = re.compile(r"(?:PyTorch|Ubuntu) [0-9]+\.[0-9]+")


def end_of_patch(image_name: str) -> tuple[str, date] | None:
    """Return the version in the image whose patches end first, and the date; None if no date is known."""
    if not image_name.startswith(_DEEP_LEARNING):
        return None
    ends = [(END_OF_PATCH[part], part) for part in _VERSIONS.findall(image_name) if part in END_OF_PATCH]
    return next(((part, last) for last, part in sorted(ends)), None)
