from collections.abc import Callable
from pathlib import Path

import pytest

from bootstrap.errors import CommandError
from bootstrap.gpus import DRIVER_LIST, GpuCounter, count_listed

TWO = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)
  MIG 1g.5gb Device 0: (UUID: MIG-1)
  MIG 1g.5gb Device 1: (UUID: MIG-2)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-2)
"""


@pytest.mark.parametrize(("listing", "count"), [("", 0), ("No devices found.\n", 0), (TWO, 2)])
def test_gpus_are_counted_and_their_parts_are_not(listing: str, count: int) -> None:
    assert count_listed(listing) == count


def broken() -> str:
    raise CommandError("nvidia-smi -L exited 9: no driver")


def test_driver_is_counted_where_nvidia_smi_has_no_answer(tmp_path: Path) -> None:
    assert GpuCounter(tmp_path, nvidia_smi=lambda: None).count() == 0
    for address in ("0000:00:1e.0", "0000:00:1f.0"):
        (tmp_path / DRIVER_LIST / address).mkdir(parents=True)
    assert GpuCounter(tmp_path, nvidia_smi=lambda: None).count() == 2
    assert GpuCounter(tmp_path, nvidia_smi=broken).count() == 2
    assert GpuCounter(tmp_path, nvidia_smi=lambda: "GPU 0: NVIDIA L4\n").count() == 1


def test_driver_that_comes_late_is_noticed_and_then_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[Callable[[], str]] = [broken, broken, lambda: TWO]
    gpus = GpuCounter(tmp_path, nvidia_smi=lambda: answers.pop(0)())
    assert [gpus.count() for _ in range(5)] == [0, 0, 2, 2, 2]
    assert [record.getMessage() for record in caplog.records] == ["nvidia-smi -L exited 9: no driver"]
