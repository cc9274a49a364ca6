"""Test that nodes are refused if only some have Elastic Fabric Adapters, or if their setups differ or still run."""

import json
from pathlib import Path

import pytest

from bootstrap import contract
from launcher.errors import BusyError, RefusedError
from launcher.hosts.hostfile import Host
from launcher.job.checks import check_fabric, check_setup
from launcher.runner.main import SETUP_STATE_FILE, count_efa_devices, read_setup_state

HOSTS = [Host(name=f"deeplearning-worker{number}", slots=1) for number in (1, 2, 3)]
NEW, OLD = "0123456789abcdef" * 4, "fedcba9876543210" * 4


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


def progress(sha256: str, state: str = "done") -> str:
    return json.dumps({"state": state, "sha256": sha256, "failure": None})


@pytest.mark.parametrize(
    ("states", "why"),
    [
        (
            (progress(NEW), progress(OLD), progress(OLD)),
            "the nodes have run different setups, 0123456789ab on deeplearning-worker1, fedcba987654 on "
            "deeplearning-worker2 and 1 more: dlcluster setup brings all to the same one",
        ),
        (
            (progress(NEW), "", progress(NEW)),
            "0123456789ab on deeplearning-worker1 and 1 more, none on deeplearning-worker2",
        ),
        (
            (progress(NEW), progress(NEW, "running"), progress(NEW)),
            "the setup runs on deeplearning-worker2: wait until",
        ),
    ],
    ids=["two", "with and without", "running"],
)
def test_job_on_nodes_with_different_setups_is_refused(states: tuple[str, ...], why: str) -> None:
    with pytest.raises(BusyError if "setup runs" in why else RefusedError, match=f"^nothing started: .*{why}"):
        check_setup([*zip(HOSTS, states, strict=True)])


@pytest.mark.parametrize("states", [("", "", ""), (progress(NEW),) * 3], ids=["none", "the same"])
def test_nodes_of_one_setup_may_train(states: tuple[str, ...]) -> None:
    check_setup([*zip(HOSTS, states, strict=True)])


def test_node_reports_what_its_service_wrote(tmp_path: Path) -> None:
    assert SETUP_STATE_FILE == contract.SETUP_STATE_FILE
    file = tmp_path / "setup.json"
    assert read_setup_state(str(file)) == ""
    file.write_text(progress(NEW))
    assert read_setup_state(str(file)) == progress(NEW)
