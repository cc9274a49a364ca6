"""Find out whether PyTorch is on an EBS volume, which fetches each block from its snapshot on first access."""

import os
from pathlib import Path
from typing import Final

from bootstrap.contract import PYTORCH_PYTHON
from bootstrap.files.paths import under_root

EBS_MODEL: Final = "Amazon Elastic Block Store"
"""Model of an NVMe device of EBS (Amazon EBS User Guide, "Amazon EBS and NVMe")."""
XEN_DISK: Final = "xvd"
"""Start of the names of EBS volumes on Xen instances such as p3, which do not report a model."""


def is_pytorch_on_ebs(root: Path) -> bool:
    """Return whether EBS holds the image's PyTorch environment; False if the image has none."""
    try:
        number = under_root(root, PYTORCH_PYTHON).parents[1].stat().st_dev
        name = f"{os.major(number)}:{os.minor(number)}"
        device = (root / "sys/dev/block" / name).resolve(strict=True)
    except OSError:
        return False
    # A partition's directory is in its disk's.
    return any(_is_ebs(each) for each in (device, device.parent))


def _is_ebs(device: Path) -> bool:
    try:
        return (device / "device/model").read_text().strip() == EBS_MODEL
    except OSError:
        return device.name.startswith(XEN_DISK)
