"""Test that nodes are refused if only some have Elastic Fabric Adapters."""

from pathlib import Path

import pytest

from launcher.errors import RefusedError
from launcher.hosts.hostfile import Host
from launcher.job.checks import check_fabric
from launcher.runner.main import count_efa_devices

HOSTS = [Host(name=f"deeplearning-worker{number}", slots=1) for number in (1, 2, 3)]


@pytest.mark.parametrize("count", [0, None], ids=["without", "runner of an earlier release"])
def test_job_on_nodes_with_and_without_efa_is_refused(count: int | None) -> None:
    with pytest.raises(RefusedError, match="nothing started: no EFA on deeplearning-worker2 but on the other nodes"):
        check_fabric([*zip(HOSTS, (4, count, 4), strict=True)])


@pytest.mark.parametrize("counts", [(0, 0, 0), (4, 4, 4), (0, None, 0), (None, None, None)])
def test_nodes_of_one_fabric_may_train(counts: tuple[int | None, ...]) -> None:
    check_fabric([*zip(HOSTS, counts, strict=True)])


def test_devices_are_counted_by_their_driver(tmp_path: Path) -> None:
    assert count_efa_devices(str(tmp_path / "infiniband")) == 0
    for name, driver in (("rdmap0s6", "efa"), ("mlx5_0", "mlx5_core")):
        (tmp_path / f"infiniband/{name}/device").mkdir(parents=True)
        (tmp_path / f"infiniband/{name}/device/driver").symlink_to(f"../../bus/pci/drivers/{driver}")
    assert count_efa_devices(str(tmp_path / "infiniband")) == 1
