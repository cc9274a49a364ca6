"""Test the end of an image's patches."""

from datetime import date

import pytest

from stacks.catalog.deep_learning_ami import end_of_patch


@pytest.mark.parametrize(
    ("name", "end"),
    [
        (
            "Deep Learning OSS Nvidia Driver AMI GPU PyTorch 2.7 (Ubuntu 22.04) 20260502",
            ("PyTorch 2.7", date(2026, 4, 23)),
        ),
        # AWS has published no date for this framework yet, but one for its system.
        (
            "Deep Learning OSS Nvidia Driver AMI GPU PyTorch 2.12 (Ubuntu 24.04) 20261101",
            ("Ubuntu 24.04", date(2029, 4, 30)),
        ),
        ("Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) 20261101", ("Ubuntu 22.04", date(2027, 4, 30))),
        ("Deep Learning OSS Nvidia Driver AMI GPU PyTorch 2.13 (Ubuntu 26.04) 20261101", None),
        ("our own image, PyTorch 2.7", None),
        ("", None),
    ],
)
def test_end_of_patch_returns_the_earliest_end_date_in_the_image(name: str, end: tuple[str, date] | None) -> None:
    assert end_of_patch(name) == end
