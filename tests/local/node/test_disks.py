"""Test the layers of nodes' disks."""

from pathlib import Path

import pytest

from local.node import disks
from local.node.disks import COMPLETE, IMAGES, ami_layers, is_complete, request_image, take_requested_images


def test_image_is_copied_once_as_a_layer_above_its_nodes_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    monkeypatch.setattr(disks, "_take_image", lambda directory, **_: taken.append(directory.name))
    request_image(tmp_path, "ami-1", instance_id="i-1", base="ami-of-amazon")
    request_image(tmp_path, "ami-2", instance_id="i-2", base="ami-1")
    take_requested_images(tmp_path, "i-1", disk=tmp_path)
    assert (taken, is_complete(tmp_path, "ami-1")) == (["ami-1"], False)
    (tmp_path / IMAGES / "ami-1" / COMPLETE).touch()
    take_requested_images(tmp_path, "i-1", disk=tmp_path)
    assert (taken, is_complete(tmp_path, "ami-1")) == (["ami-1"], True)
    base = [Path("/base")]
    above = [tmp_path / IMAGES / name / "disk/upper" for name in ("ami-2", "ami-1")]
    assert ami_layers(tmp_path, "ami-2", base=base) == [*above, *base]
    assert ami_layers(tmp_path, "ami-of-amazon", base=base) == base
