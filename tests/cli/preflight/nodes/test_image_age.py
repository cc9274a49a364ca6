"""Test the report of an image's age, and of the end of its patches."""

from datetime import date
from typing import Any

import pytest

from cli.preflight.nodes.image_age import age

TODAY = date(2026, 11, 22)
OURS = "Deep Learning OSS Nvidia Driver AMI GPU PyTorch 2.12 (Ubuntu 24.04) 20261101"
ENDED = "Deep Learning OSS Nvidia Driver AMI GPU PyTorch 2.7 (Ubuntu 22.04) 20260502"


@pytest.mark.parametrize(
    ("described", "sentence"),
    [
        ({"Name": OURS, "CreationDate": "2026-11-01T00:00:00.000Z"}, None),
        ({"Name": OURS, "CreationDate": "2026-08-24T00:00:00.000Z"}, None),
        ({"Name": OURS, "CreationDate": "2026-08-23T00:00:00.000Z"}, "was made on 2026-08-23, 91 days ago"),
        ({"Name": "mine", "CreationDate": "2020-01-01T00:00:00.000Z"}, "was made on 2020-01-01"),
        ({"Name": OURS, "DeprecationTime": "2026-11-22T00:00:00.000Z"}, "is deprecated since 2026-11-22"),
        ({"Name": OURS, "DeprecationTime": "2026-11-23T00:00:00.000Z"}, None),
        ({"Name": ENDED}, f"({ENDED}) gets no patches: those of PyTorch 2.7 ended on 2026-04-23"),
        ({}, None),
    ],
)
def test_old_image_is_reported(described: dict[str, Any], sentence: str | None) -> None:
    image: Any = {"ImageId": "ami-1", **described}
    found = list(age(image, today=TODAY, renew_fix="renew it", other_family_fix="change it"))
    assert [finding.level for finding in found] == (["warning"] if sentence else [])
    if sentence:
        assert sentence in found[0].sentence
        # A discontinued family has no newer image.
        assert found[0].fix == ("change it" if "no patches" in sentence else "renew it")


def test_last_day_of_patches_is_not_past() -> None:
    described: Any = {"ImageId": "ami-1", "Name": ENDED}
    assert list(age(described, today=date(2026, 4, 23), renew_fix="", other_family_fix="")) == []
    assert len(list(age(described, today=date(2026, 4, 24), renew_fix="", other_family_fix=""))) == 1
