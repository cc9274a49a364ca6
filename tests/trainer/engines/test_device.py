from collections.abc import Iterator

import pytest
import torch

from trainer.engines.device import choose_device, set_threads
from trainer.errors import UsageError
from trainer.ranks import Ranks


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("gpus", "local_rank", "available", "device"),
    [
        ((), 0, 0, "cpu"),
        ((), 1, 2, "cuda:1"),
        ((0, 1), 1, 2, "cuda:1"),
        ((3, 2), 1, 4, "cuda:2"),
    ],
)
def test_every_process_has_its_own_device(gpus: tuple[int, ...], local_rank: int, available: int, device: str) -> None:
    ranks = Ranks(rank=local_rank, world_size=2, local_rank=local_rank, local_world_size=2)
    assert choose_device(gpus, ranks=ranks, available=available) == device


@pytest.mark.parametrize(
    ("gpus", "available", "message"),
    [
        ((0,), 4, "--gpus needs one process a GPU on each machine, got 1 GPUs and 2 processes"),
        ((0, 1), 0, "no GPU 1 on this machine, torch sees 0"),
        ((), 1, "no GPU 1 on this machine, torch sees 1"),
    ],
)
def test_fails_when_there_is_no_gpu_for_a_process(gpus: tuple[int, ...], available: int, message: str) -> None:
    ranks = Ranks(rank=1, world_size=2, local_rank=1, local_world_size=2)
    with pytest.raises(UsageError) as caught:
        choose_device(gpus, ranks=ranks, available=available)
    assert str(caught.value) == message


def test_processes_share_the_cores_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: range(8))
    set_threads(Ranks(local_rank=0, local_world_size=2, world_size=2), {})
    assert torch.get_num_threads() == 4
    set_threads(Ranks(), {"OMP_NUM_THREADS": "1"})
    assert torch.get_num_threads() == 4
