"""Test which device each process gets, and how it is configured."""

from collections.abc import Iterator

import pytest
import torch

from trainer.config.settings import TrainConfig
from trainer.distributed.world import World
from trainer.errors import UsageError
from trainer.torch_backend.device import choose_device, make_deterministic, prepare_device, set_threads


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
def test_every_process_gets_its_own_device(gpus: tuple[int, ...], local_rank: int, available: int, device: str) -> None:
    world = World(rank=local_rank, world_size=2, local_rank=local_rank, local_world_size=2)
    assert choose_device(gpus, world=world, available=available) == device


@pytest.mark.parametrize(
    ("gpus", "available", "message"),
    [
        ((0,), 4, "--gpus needs one process per GPU on each machine, got 1 GPUs and 2 processes"),
        ((0, 1), 0, "no GPU 1 on this machine, torch sees 0"),
        ((), 1, "no GPU 1 on this machine, torch sees 1"),
    ],
)
def test_missing_gpu_for_a_process_is_reported(gpus: tuple[int, ...], available: int, message: str) -> None:
    world = World(rank=1, world_size=2, local_rank=1, local_world_size=2)
    with pytest.raises(UsageError) as caught:
        choose_device(gpus, world=world, available=available)
    assert str(caught.value) == message


def test_processes_share_the_cores_unless_omp_num_threads_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: range(8))
    set_threads(World(local_rank=0, local_world_size=2, world_size=2), {})
    assert torch.get_num_threads() == 4
    set_threads(World(), {"OMP_NUM_THREADS": "1"})
    assert torch.get_num_threads() == 4


@pytest.fixture
def undetermined() -> Iterator[None]:
    fills = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]  # documented, without a type
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = fills  # type: ignore[attr-defined]  # documented, without a type


@pytest.mark.usefixtures("undetermined")
def test_deterministic_configures_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    environment: dict[str, str] = {}
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    make_deterministic(environment)
    assert environment == {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cudnn.benchmark
    chosen = {"CUBLAS_WORKSPACE_CONFIG": ":16:8"}
    make_deterministic(chosen)
    assert chosen == {"CUBLAS_WORKSPACE_CONFIG": ":16:8"}


def test_deterministic_changes_nothing_on_a_cpu() -> None:
    environment = {"OMP_NUM_THREADS": "1"}
    device = prepare_device(TrainConfig(deterministic=True), World(), environment)
    if device.type == "cpu":
        assert environment == {"OMP_NUM_THREADS": "1"}
        assert not torch.are_deterministic_algorithms_enabled()


@pytest.fixture
def same_rounding() -> Iterator[None]:
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.usefixtures("same_rounding")
@pytest.mark.parametrize(("dtype", "rounds"), [(None, True), ("float32", False), ("bfloat16", True)])
def test_gpu_uses_tf32_unless_float32_is_explicit(
    monkeypatch: pytest.MonkeyPatch, dtype: str | None, rounds: bool
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("torch.cuda.set_device", lambda _: None)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = not rounds
    prepare_device(TrainConfig(dtype=dtype), World(), {"OMP_NUM_THREADS": "1"})
    assert torch.backends.cudnn.allow_tf32 is torch.backends.cuda.matmul.allow_tf32 is rounds


def test_compile_graphs_without_a_gpu_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(UsageError, match="--compile graphs needs a GPU, this rank uses cpu"):
        prepare_device(TrainConfig(compile="graphs"), World(), {"OMP_NUM_THREADS": "1"})
