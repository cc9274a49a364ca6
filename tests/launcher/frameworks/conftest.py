"""Provide a launcher whose path has no blanks, as mpirun requires."""

from dataclasses import replace
from pathlib import Path

import pytest

from launcher.frameworks import mpi
from tests.launcher.loopback_cluster import LAUNCHER, LoopbackCluster


@pytest.fixture
def cluster(cluster: LoopbackCluster, tmp_path: Path) -> LoopbackCluster:
    """Reach the launcher by a path without blanks, wherever the checkout is, because mpirun splits commands there."""
    for package in ("launcher", "bootstrap"):
        (tmp_path / package).symlink_to(LAUNCHER.parent / package)
    return replace(cluster, launcher=tmp_path / "launcher")


@pytest.fixture
def launcher_path_without_blanks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the launcher a path without blanks."""
    monkeypatch.setattr(mpi, "PROGRAM", Path("/opt/deeplearning/launcher/__main__.py"))
