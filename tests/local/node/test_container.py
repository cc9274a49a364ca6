"""Test what is put on a node's disk before it boots."""

import subprocess
from pathlib import Path

import pytest

from local.node.container import EFA_DEVICES, install_simulated_efa

UNITS = "etc/systemd/system"


def shown_adapters(disk: Path) -> set[str]:
    """Run what the node's systemd runs at its start, without the mounts; return the names of the adapters."""
    unit = disk / UNITS / "sysinit.target.wants/local-efa.service"
    if not unit.exists():
        return set()
    [command] = [line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
    *shell, script = command.removeprefix("ExecStart=").split()
    text = (disk / script.lstrip("/")).read_text()
    for directory in ("run/local-aws", "usr/share"):
        text = text.replace(f"/{directory}", f"{disk}/{directory}")
    subprocess.run([*shell, "-c", f"mount() {{ :; }}\n{text}"], check=True)
    return {path.name for path in (disk / EFA_DEVICES).iterdir()}


def test_node_with_adapters_shows_them_from_its_start(tmp_path: Path) -> None:
    install_simulated_efa(tmp_path, count=4)
    assert shown_adapters(tmp_path) == {f"rdmap{number}s6" for number in range(4)}


@pytest.mark.parametrize("earlier", [None, 4], ids=["new disk", "disk of a node that had some"])
def test_node_without_adapters_shows_none(tmp_path: Path, earlier: int | None) -> None:
    if earlier:
        install_simulated_efa(tmp_path, count=earlier)
    install_simulated_efa(tmp_path, count=0)
    assert shown_adapters(tmp_path) == set()
