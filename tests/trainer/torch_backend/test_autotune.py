"""Test how --fast auto measures and picks the compute mode."""

import json
import logging
import math
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.trainer.programs import autotuned_trainer
from tests.trainer.programs.processes import run
from trainer.config.choices import COMPILE_LEVELS
from trainer.config.settings import TrainConfig
from trainer.distributed.data_parallel import DataParallelGroup
from trainer.distributed.reduce.reducers import Communicator
from trainer.distributed.rendezvous import RENDEZVOUS_TIMEOUT, STEP_TIMEOUT
from trainer.distributed.world import World
from trainer.models import build
from trainer.timeouts import STEP_TIMEOUT_S
from trainer.torch_backend.autotune import (
    BUDGET_S,
    TIMED_STEPS,
    TIMINGS,
    WARMUP_STEPS,
    Autotuner,
    Candidates,
    find_candidates,
    pick_mode,
)
from trainer.torch_backend.backend import StepSettings, TorchBackend
from trainer.torch_backend.compute_mode import DEFAULT_MODE, MODE_KEY, ComputeMode, decode, encode
from trainer.torch_backend.create_backend import create_backend

CPU, GPU = torch.device("cpu"), torch.device("cuda:0")
SETTINGS = StepSettings(learning_rate=0.1, momentum=0.9, weight_decay=0)
CONVOLUTIONS = nn.Sequential(nn.Conv2d(1, 1, 1))
BOTH = [False, True]
ALL = Candidates(dtypes=["float32", "bfloat16", "float16"], channels_last=BOTH, compile_modes=COMPILE_LEVELS)


def test_faster_choices_are_kept_one_by_one_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    def seconds(mode: ComputeMode) -> float:
        # float16 is hardly quicker than bfloat16, and channels_last slower.
        of_type = {"float32": 4.0, "bfloat16": 2.0, "float16": 1.99}[mode.dtype]
        return (
            of_type * (1.5 if mode.channels_last else 1) * {"0": 1, "1": 0.5, "graphs": 0.4}[mode.compile_mode] / 1000
        )

    with caplog.at_level(logging.INFO):
        assert pick_mode(ALL, seconds, elapsed_s=lambda: 0.0) == ComputeMode(dtype="bfloat16", compile_mode="graphs")
    assert caplog.messages == [
        "picked bfloat16 compiled graphs, a step took: float32 4.00 ms; bfloat16 2.00 ms; float16 1.99 ms; "
        "bfloat16 channels_last 3.00 ms; bfloat16 compiled 1.00 ms; bfloat16 compiled graphs 0.80 ms"
    ]


def test_failing_mode_is_not_picked(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert (
            pick_mode(ALL, lambda mode: math.inf if mode.compile_mode != "0" else 1.0, elapsed_s=lambda: 0.0)
            == DEFAULT_MODE
        )
    assert "float32 compiled fails" in caplog.messages[0]


def candidates(device: torch.device, **settings: str | bool) -> Candidates:
    return find_candidates(TrainConfig(**settings), DEFAULT_MODE, CONVOLUTIONS, device=device)  # type: ignore[arg-type]  # settings of any kind


def test_only_open_settings_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda **_: True)
    assert candidates(GPU, fast="auto") == ALL
    assert candidates(GPU, fast="auto", compile="0").compile_modes == ["0"]
    assert candidates(GPU, fast="auto", deterministic=True).compile_modes == ["0"]
    assert candidates(GPU, compile="auto") == Candidates(
        dtypes=["float32"], channels_last=[False], compile_modes=COMPILE_LEVELS
    )
    assert candidates(CPU, compile="auto").compile_modes == COMPILE_LEVELS[:2]
    assert candidates(CPU, fast="auto") == Candidates(
        dtypes=["float32", "bfloat16"], channels_last=BOTH, compile_modes=["0"]
    )
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda **_: False)
    assert candidates(GPU, fast="auto").dtypes == ["float32", "float16"]


def test_mode_survives_encoding() -> None:
    mode = ComputeMode(dtype="float16", compile_mode="graphs")
    assert decode(encode(mode)) == mode
    assert decode(encode(DEFAULT_MODE)) == DEFAULT_MODE
    # As earlier checkpoints have it.
    assert decode([1.0, 1.0, 1.0]) == ComputeMode(dtype="bfloat16", channels_last=True, compile_mode="1")


@pytest.mark.usefixtures("one_thread")
def test_measuring_does_not_change_the_run(caplog: pytest.LogCaptureFixture) -> None:
    network = "tests.trainer.networks:batch_norm_network"
    config = TrainConfig(fast="auto", network=network, image_shape=(1, 12, 12), batch_size_per_node=4)
    with caplog.at_level(logging.INFO):
        backend = create_backend(config, world=World(), dp=DataParallelGroup(), learning_rate=0.1)
        backend.restore(None, source=0)
    output = next(message for message in caplog.messages if message.startswith("picked "))
    assert all(name in output for name in ("float32 ", "bfloat16 ", "channels_last "))
    torch.manual_seed(0)
    model = build(network, num_classes=10, image_shape=(1, 12, 12))
    assert all(np.array_equal(value, model.state_dict()[name].numpy()) for name, value in backend.weights().items())


def test_resumed_run_keeps_its_mode_without_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    picked = ComputeMode(dtype="bfloat16", channels_last=True)
    first, second = (
        TorchBackend(
            build("tests.trainer.networks:batch_norm_network", num_classes=10, image_shape=(3, 12, 12)),
            SETTINGS,
            device=CPU,
            dp=DataParallelGroup(),
            autotune=choose,
        )
        for choose in (lambda: picked, lambda: pytest.fail("measured"))
    )
    first.restore(None, source=0)
    state = first.state()
    assert decode(state.optimizer[MODE_KEY].tolist()) == picked
    second.restore(state, source=0)
    assert np.array_equal(second.state().optimizer[MODE_KEY], state.optimizer[MODE_KEY])


def test_backend_without_a_mode_can_be_closed() -> None:
    # As by a restarted job whose run had completed: it restores nothing.
    config = TrainConfig(fast="auto")
    backend = create_backend(config, world=World(), dp=DataParallelGroup(), learning_rate=0.1)
    backend.close()
    backend.close()


def test_no_choice_is_tried_after_the_time_budget(caplog: pytest.LogCaptureFixture) -> None:
    tried: list[ComputeMode] = []

    def seconds(mode: ComputeMode) -> float:
        tried.append(mode)
        return 1.0

    with caplog.at_level(logging.INFO):
        assert pick_mode(ALL, seconds, elapsed_s=lambda: 150.0 * len(tried)) == DEFAULT_MODE
    assert len(tried) == 2
    assert caplog.messages[0] == "measured for 240 s, 4 choices are left untried"
    assert BUDGET_S < STEP_TIMEOUT_S


def test_all_ranks_use_the_mode_that_one_picked(monkeypatch: pytest.MonkeyPatch) -> None:
    picked = ComputeMode(dtype="bfloat16")
    monkeypatch.setattr(TorchBackend, "broadcast_object", lambda *_, **__: encode(picked))
    monkeypatch.setattr("torch.distributed.broadcast", lambda *_, **__: None)
    backend = TorchBackend(
        build("lenet", num_classes=10, image_shape=(1, 28, 28)),
        SETTINGS,
        device=CPU,
        dp=DataParallelGroup(rank=1, world_size=2),
        autotune=lambda: pytest.fail("measured"),
    )
    backend.restore(None, source=0)
    assert decode(backend.state().optimizer[MODE_KEY].tolist()) == picked


def test_two_ranks_measure_with_the_ring_and_the_slowest_counts(tmp_path: Path) -> None:
    ranks = run(
        *("--fast", "auto", "--network", "tests.trainer.networks:batch_norm_network", "--kv-store", "dist_sync"),
        *("--benchmark", "1", "--image-shape", "1,12,12", "--num-examples", "44", "--batch-size", "11"),
        *("--num-epochs", "1"),
        directory=tmp_path,
        count=2,
        program=(str(Path(autotuned_trainer.__file__)),),
    )
    picked = (
        "picked float32 channels_last, a step took: "
        "float32 1000.00 ms; bfloat16 2000.00 ms; float32 channels_last 900.00 ms"
    )
    assert picked in ranks[0].log.read_text()
    assert ranks[0].digests == ranks[1].digests
    sums = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2)]
    assert sums == [3 * (WARMUP_STEPS + TIMINGS * TIMED_STEPS)] * 2


def autotuner(network: nn.Module, communicator: Communicator) -> Autotuner:
    config = TrainConfig(
        fast="auto",
        compile="0",
        network="tests.trainer.networks:perceptron",
        image_shape=(1, 12, 12),
        batch_size_per_node=4,
    )
    return Autotuner(
        config=config,
        settings=SETTINGS,
        configured=DEFAULT_MODE,
        model=network,
        device=CPU,
        world=World(),
        dp=DataParallelGroup(world_size=2),
        communicator=communicator,
    )


@pytest.mark.parametrize("fails", [False, True])
def test_measuring_leaves_the_next_mode_as_long_as_a_start(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    timeouts: list[timedelta] = []
    monkeypatch.setattr(Communicator, "set_timeout", lambda _, timeout: timeouts.append(timeout))
    monkeypatch.setattr(Communicator, "all_reduce", lambda *_, **__: None)
    monkeypatch.setattr(Communicator, "all_reduce_max", lambda _, seconds, **__: seconds)
    if fails:
        monkeypatch.setattr("trainer.torch_backend.autotune._mean_step_seconds", fail)
    network = build("tests.trainer.networks:perceptron", num_classes=10, image_shape=(1, 12, 12))
    communicator = Communicator(world_size=2)
    seconds = autotuner(network, communicator)._measure(
        DEFAULT_MODE, SETTINGS, dp=DataParallelGroup(world_size=2), communicator=communicator, timings=1
    )
    assert math.isinf(seconds) == fails
    # A step of one rank may take no longer than that of the others, but compiling for the next mode may.
    assert {*timeouts[:-1]} == {STEP_TIMEOUT}
    assert timeouts[-1] == RENDEZVOUS_TIMEOUT


def fail(*_: object) -> float:
    raise RuntimeError("out of memory")


class WithASlowRank(Communicator):
    """Another rank takes ten times as long, except for float32, and has no memory for float16."""

    def __init__(self) -> None:
        super().__init__(world_size=2)
        self.mode = DEFAULT_MODE

    def all_reduce_max(self, value: float, *, device: torch.device) -> float:
        if value < 0.1:
            return value  # Since the beginning: the tests measure in seconds.
        return {"float32": 1.0, "bfloat16": 10.0, "float16": math.inf}[self.mode.dtype] * value


def test_ranks_measure_with_all_reduce_and_the_slowest_counts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slow = WithASlowRank()
    measured: list[str] = []

    def measure(
        _: Autotuner, mode: ComputeMode, __: StepSettings, *, communicator: Communicator, **___: object
    ) -> float:
        slow.mode = mode
        measured.append(str(mode) if communicator.is_distributed else f"{mode} local")
        return 1.0 if mode == DEFAULT_MODE else 0.5

    monkeypatch.setattr(Autotuner, "_measure", measure)
    monkeypatch.setattr(
        "trainer.torch_backend.autotune.find_candidates", lambda *_, **__: replace(ALL, channels_last=[False])
    )
    with caplog.at_level(logging.INFO):
        assert autotuner(CONVOLUTIONS, slow).pick_mode().dtype == "float32"
    # Where the local step of one rank fails, no rank begins a distributed step.
    assert measured[:5] == ["float32 local", "float32", "bfloat16 local", "bfloat16", "float16 local"]
    assert "float16" not in measured
    assert "bfloat16 5000.00 ms; float16 fails" in caplog.messages[0]
