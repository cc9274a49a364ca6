"""Test what is put on a node's disk before it boots."""

import subprocess
from pathlib import Path

import pytest

from local.node.container import install_fake_efa

UNITS = "etc/systemd/system"


def test_node_with_adapters_shows_them_from_its_start(tmp_path: Path) -> None:
    install_fake_efa(tmp_path, count=4)
    assert (tmp_path / "usr/share/local-aws/efa").read_text() == "4\n"
    unit = (tmp_path / UNITS / "sysinit.target.wants/local-efa.service").read_text()
    [script] = [line.split()[-1] for line in unit.splitlines() if line.startswith("ExecStart=")]
    subprocess.run(["sh", "-n", tmp_path / script.lstrip("/")], check=True)


@pytest.mark.parametrize("earlier", [None, 4], ids=["new disk", "disk of a node that had some"])
def test_node_without_adapters_shows_none(tmp_path: Path, earlier: int | None) -> None:
    if earlier:
        install_fake_efa(tmp_path, count=earlier)
    install_fake_efa(tmp_path, count=0)
    assert (tmp_path / "usr/share/local-aws/efa").read_text() == "0\n"
    assert (tmp_path / UNITS).exists() == bool(earlier)
