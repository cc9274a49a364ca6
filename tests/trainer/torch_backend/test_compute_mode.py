"""Test that all compute modes give nearly the same step."""

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.trainer.distributed.weights import distance
from tests.trainer.networks import Viewing
from trainer.backend import Weights
from trainer.config.settings import TrainConfig
from trainer.data import Images, Labels, Pixels
from trainer.data.batches import load_and_transform
from trainer.data.resized_crop import ResizedCrops
from trainer.data.synthetic import make_synthetic
from trainer.distributed.data_parallel import DataParallelGroup
from trainer.errors import TrainerError
from trainer.metrics.results import digest
from trainer.models import build
from trainer.torch_backend.backend import StepSettings, TorchBackend
from trainer.torch_backend.compute_mode import DEFAULT_MODE, ComputeMode, configured_mode
from trainer.torch_backend.optimizer import FIRST_SCALE
from trainer.torch_backend.saved_state import SCALE

CPU = torch.device("cpu")
SHAPE = (3, 16, 16)
DATA = make_synthetic(SHAPE, samples=40)
CONVOLUTIONS = "tests.trainer.networks:batch_norm_network"
PERCEPTRON = "tests.trainer.networks:perceptron"
"""For float16, whose convolutions take torch a second each on a CPU."""
IMAGES, LABELS = load_and_transform(DATA, DATA.train, np.arange(24))
HALF = ComputeMode(dtype="float16")
pytestmark = pytest.mark.usefixtures("one_thread")


def make(**options: Any) -> TorchBackend:
    torch.manual_seed(0)
    mode = options.pop("mode", DEFAULT_MODE)
    network = options.pop("network", PERCEPTRON if mode == HALF else CONVOLUTIONS)
    settings = StepSettings(learning_rate=0.05, momentum=0.9, weight_decay=0.001, **options)
    model = build(network, num_classes=10, image_shape=SHAPE)
    return TorchBackend(model, settings, device=CPU, dp=DataParallelGroup(), mode=mode)


def steps(
    backend: TorchBackend, count: int = 3, images: Images = IMAGES, labels: Labels = LABELS, samples: int = 0
) -> Weights:
    for _ in range(count):
        backend.forward_backward(images, labels)
        backend.optimizer_step(num_samples=samples or len(labels))
    return backend.weights()


@pytest.mark.parametrize(
    ("mode", "tolerance"),
    [
        (ComputeMode(channels_last=True), 1e-5),
        # 8 and 11 significant bits.
        (ComputeMode(dtype="bfloat16"), 2e-2),
        (ComputeMode(dtype="bfloat16", channels_last=True), 2e-2),
        (HALF, 3e-3),
    ],
)
def test_modes_differ_only_by_rounding(mode: ComputeMode, tolerance: float) -> None:
    found = steps(make(mode=mode))
    exact = steps(make(network=PERCEPTRON if mode == HALF else CONVOLUTIONS))
    assert distance(found, exact) < tolerance
    assert {value.dtype for value in found.values()} == {np.dtype(np.float32)}
    assert (digest(found) == digest(exact)) is (mode == DEFAULT_MODE)


def test_compiled_network_learns_the_same_and_keeps_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    # What Inductor makes of it takes a minute; whether the network can be traced at all shows without.
    compile_network = torch.compile
    monkeypatch.setattr("torch.compile", lambda model, **_: compile_network(model, backend="aot_eager"))
    exact, found = steps(make(), 2), steps(make(mode=ComputeMode(compile_mode="1")), 2)
    assert list(found) == list(exact)
    assert distance(found, exact) < 1e-5


def test_uncompilable_network_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("no compiler")

    compile_network = torch.compile
    monkeypatch.setattr("torch.compile", lambda model, **_: compile_network(model, backend=refuse))
    with pytest.raises(TrainerError, match=r"torch.compile failed, try --compile 0: .*no compiler"):
        steps(make(mode=ComputeMode(compile_mode="1")))


@pytest.mark.parametrize("parts", [2, 5])
def test_accumulated_batches_equal_one_batch(parts: int) -> None:
    # Without BatchNorm, which normalizes each part by itself; 24 samples are not five equal parts.
    options = {"network": PERCEPTRON}
    whole, accumulated = make(**options), make(accumulation=parts, **options)
    assert distance(steps(accumulated), steps(whole)) < 1e-6
    results = [trained.forward_backward(IMAGES, LABELS) for trained in (accumulated, whole)]
    assert results[0].loss_sum == pytest.approx(results[1].loss_sum)
    assert results[0].correct == results[1].correct
    assert steps(accumulated, 1, IMAGES[:1], LABELS[:1]).keys()


def test_accumulated_batches_are_loaded_one_by_one() -> None:
    class Counting:
        """Records the number of samples in each read."""

        labels = DATA.train.labels
        reads: list[int] = []

        def read(self, indices: NDArray[np.int64], crops: ResizedCrops | None = None) -> Pixels:
            assert crops is None
            self.reads.append(len(indices))
            return DATA.train.read(indices)

    backend, whole, samples = make(accumulation=4), make(accumulation=4), Counting()
    images, labels = backend.make_batch_loader(DATA)(samples, np.arange(22))
    assert samples.reads == [6]
    assert images.shape == (22, *SHAPE)
    assert backend.forward_backward(images, labels) == whole.forward_backward(IMAGES[:22], LABELS[:22])
    assert samples.reads == [6, 6, 5, 5]
    for trained in (backend, whole):
        trained.optimizer_step(num_samples=22)
    assert digest(backend.weights()) == digest(whole.weights())
    images, labels = backend.make_batch_loader(DATA)(samples, np.arange(22))
    assert backend.count_correct(images, labels) == whole.count_correct(IMAGES[:22], LABELS[:22])


@pytest.mark.parametrize("mode", [DEFAULT_MODE, ComputeMode(channels_last=True), ComputeMode(dtype="bfloat16"), HALF])
def test_resumed_run_takes_the_same_steps(mode: ComputeMode) -> None:
    backend, other = make(mode=mode), make(mode=mode)
    steps(backend)
    state = backend.state()
    other.restore(state, source=0)
    assert digest(steps(backend)) == digest(steps(other))


def test_checkpoint_does_not_depend_on_the_memory_layout() -> None:
    backend, other = make(mode=ComputeMode(channels_last=True)), make()
    steps(backend)
    other.restore(backend.state(), source=0)
    assert digest(backend.weights()) == digest(other.weights())
    for one, same in zip(backend.state().optimizer.values(), other.state().optimizer.values(), strict=True):
        assert np.array_equal(one, same)


def test_float16_overflow_skips_the_step_and_halves_the_scale() -> None:
    backend = make(mode=HALF)
    steps(backend, 1)
    state = backend.state()
    before = digest(state.weights)
    assert state.optimizer[SCALE].tolist() == [FIRST_SCALE, 1]
    huge = {**state.optimizer, SCALE: np.array([2.0**30, 7.0])}
    backend.restore(type(state)(weights=state.weights, optimizer=huge), source=0)
    result = backend.forward_backward(IMAGES, LABELS)
    assert np.isfinite(result.loss_sum)
    backend.optimizer_step(num_samples=len(LABELS))
    found = backend.state()
    assert found.optimizer[SCALE].tolist() == [2.0**29, 0]
    assert digest(found.weights) == before
    assert np.array_equal(found.optimizer["momentum"], state.optimizer["momentum"])
    assert digest(steps(backend, 20)) != before


def test_float16_works_without_samples_in_the_first_step_and_after_a_resume() -> None:
    backend, resumed = make(mode=HALF), make(mode=HALF)
    steps(backend, 1, IMAGES[:0], LABELS[:0], samples=8)
    assert backend.state().optimizer[SCALE].tolist() == [FIRST_SCALE, 1]
    steps(backend, 2)
    resumed.restore(backend.state(), source=0)
    steps(resumed, 1, IMAGES[:0], LABELS[:0], samples=8)
    assert resumed.state().optimizer[SCALE].tolist() == [FIRST_SCALE, 4]


@pytest.mark.parametrize("mode", [DEFAULT_MODE, HALF])
def test_deferred_backend_takes_the_same_steps(mode: ComputeMode) -> None:
    backend, late = (make(mode=mode, is_deferred=late, network=PERCEPTRON) for late in (False, True))
    first, second = (backend.forward_backward(IMAGES, LABELS), late.forward_backward(IMAGES, LABELS))
    assert second.loss_sum == second.correct == 0
    for trained in (backend, late):
        trained.optimizer_step(num_samples=len(LABELS))
    assert late.forward_backward(IMAGES, LABELS) == replace(first, delay_steps=1)
    assert late.take_deferred() == backend.forward_backward(IMAGES, LABELS)
    assert late.take_deferred() is backend.take_deferred() is None
    for trained in (backend, late):
        trained.optimizer_step(num_samples=len(LABELS))
    assert distance(late.weights(), backend.weights()) < 1e-6


@pytest.mark.parametrize("mode", [DEFAULT_MODE, HALF])
def test_infinite_loss_changes_no_weights_before_it_is_read(mode: ComputeMode) -> None:
    backend = make(mode=mode, is_deferred=True, network=PERCEPTRON)
    steps(backend, 2)
    before = backend.state()
    spoilt = IMAGES.copy()
    spoilt[5] = np.nan
    steps(backend, 1, spoilt)
    after = backend.state()
    assert digest(after.weights) == digest(before.weights)
    assert np.array_equal(after.optimizer["momentum"], before.optimizer["momentum"])
    result = backend.take_deferred()
    assert result is not None
    assert np.isnan(result.loss_sum)


def test_cpus_use_channels_last_only_for_our_own_convolutions() -> None:
    config = TrainConfig(dtype="bfloat16", compile="1")
    convolutions, none = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1)), torch.nn.Sequential(torch.nn.Linear(1, 1))
    assert configured_mode(config, convolutions, CPU) == ComputeMode(
        dtype="bfloat16", channels_last=True, compile_mode="1"
    )
    assert not configured_mode(config, none, CPU).channels_last
    assert (
        configured_mode(TrainConfig(network="mine:build", image_shape=(1, 28, 28)), convolutions, CPU) == DEFAULT_MODE
    )


def test_gpus_use_channels_last_if_the_network_supports_it(caplog: pytest.LogCaptureFixture) -> None:
    gpu, config = torch.device("cuda:0"), TrainConfig(network="mine:build", image_shape=(1, 28, 28))
    assert configured_mode(config, torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1)), gpu).channels_last
    with caplog.at_level(logging.INFO):
        assert configured_mode(config, Viewing(num_classes=10), gpu) == DEFAULT_MODE
    assert caplog.messages[0].startswith("the network does not take images with channels last: view size")
