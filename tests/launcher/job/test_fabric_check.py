"""Refuse nodes of which only some have Elastic Fabric Adapters."""

from pathlib import Path

import pytest

from launcher.errors import LaunchError
from launcher.hosts.hostfile import Host
from launcher.job.checks import check_fabric
from launcher.runner.main import count_efa_devices

HOSTS = [Host(name=f"deeplearning-worker{number}", slots=1) for number in (1, 2, 3)]


def test_fails_when_only_some_nodes_have_efa() -> None:
    with pytest.raises(LaunchError, match="nothing started, no EFA on deeplearning-worker2 but on the other nodes"):
        check_fabric([*zip(HOSTS, (4, 0, 4), strict=True)])


@pytest.mark.parametrize("counts", [(0, 0, 0), (4, 4, 4), (4, None, 4)])
def test_nodes_of_one_fabric_may_train(counts: tuple[int | None, ...]) -> None:
    check_fabric([*zip(HOSTS, counts, strict=True)])


def test_devices_are_counted_by_the_drivers_directory(tmp_path: Path) -> None:
    assert count_efa_devices(str(tmp_path / "infiniband")) == 0
    (tmp_path / "infiniband/rdmap0s6").mkdir(parents=True)
    assert count_efa_devices(str(tmp_path / "infiniband")) == 1
