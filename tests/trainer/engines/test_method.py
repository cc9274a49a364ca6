"""Whatever a step is computed by, it is nearly the same step."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from trainer.config import TrainConfig
from trainer.data import Images, Labels
from trainer.data.batches import prepare
from trainer.data.synthetic import make_synthetic
from trainer.engines import Weights
from trainer.engines.method import EXACT, Method, given_method
from trainer.engines.precision import FIRST_SCALE
from trainer.engines.states import SCALE
from trainer.engines.torch import TorchEngine
from trainer.errors import TrainerError
from trainer.metrics import digest
from trainer.models import build
from trainer.sampling import Shard

CPU = torch.device("cpu")
SHAPE = (3, 16, 16)
DATA = make_synthetic(SHAPE, samples=40)
CONVOLUTIONS = "tests.trainer.networks:normalised"
PERCEPTRON = "tests.trainer.networks:perceptron"
"""For float16, whose convolutions take torch a second each on a CPU."""
IMAGES, LABELS = prepare(DATA, DATA.train, np.arange(24))
HALF = Method(dtype="float16")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make(**options: Any) -> TorchEngine:
    torch.manual_seed(0)
    method = options.get("method", EXACT)
    network = options.pop("network", PERCEPTRON if method == HALF else CONVOLUTIONS)
    return TorchEngine(
        build(network, classes=10, image_shape=SHAPE),
        device=CPU,
        shard=Shard(),
        learning_rate=0.05,
        momentum=0.9,
        weight_decay=0.001,
        **options,
    )


def steps(engine: TorchEngine, count: int = 3, images: Images = IMAGES, labels: Labels = LABELS) -> Weights:
    for _ in range(count):
        engine.compute_gradients(images, labels)
        engine.update(samples=len(labels))
    return engine.weights()


def distance(weights: Weights, others: Weights) -> float:
    """Relative L2 distance of what is learned and of the statistics."""
    one, other = (np.concatenate([value.ravel() for value in each.values()]) for each in (weights, others))
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


@pytest.mark.parametrize(
    ("method", "tolerance"),
    [
        (Method(channels_last=True), 1e-5),
        # 8 and 11 significant bits.
        (Method(dtype="bfloat16"), 2e-2),
        (Method(dtype="bfloat16", channels_last=True), 2e-2),
        (HALF, 3e-3),
    ],
)
def test_another_method_rounds_otherwise_and_no_more(method: Method, tolerance: float) -> None:
    found = steps(make(method=method))
    exact = steps(make(network=PERCEPTRON if method == HALF else CONVOLUTIONS))
    assert distance(found, exact) < tolerance
    assert {value.dtype for value in found.values()} == {np.dtype(np.float32)}
    assert (digest(found) == digest(exact)) is (method == EXACT)


def test_a_compiled_network_learns_the_same_and_keeps_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    # What Inductor makes of it takes a minute; whether the network can be traced at all shows without.
    compile_network = torch.compile
    monkeypatch.setattr("torch.compile", lambda model, **_: compile_network(model, backend="aot_eager"))
    exact, found = steps(make(), 2), steps(make(method=Method(compiled="1")), 2)
    assert list(found) == list(exact)
    assert distance(found, exact) < 1e-5


def test_fails_when_a_network_cannot_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("no compiler")

    compile_network = torch.compile
    monkeypatch.setattr("torch.compile", lambda model, **_: compile_network(model, backend=refuse))
    with pytest.raises(TrainerError, match=r"torch.compile failed, try --compile 0: .*no compiler"):
        steps(make(method=Method(compiled="1")))


@pytest.mark.parametrize("parts", [2, 5])
def test_accumulated_batches_are_one_batch(parts: int) -> None:
    # Without BatchNorm, which normalises each part by itself; 24 samples are not five equal parts.
    options = {"network": PERCEPTRON}
    whole, accumulated = make(**options), make(accumulation=parts, **options)
    assert distance(steps(accumulated), steps(whole)) < 1e-6
    results = [each.compute_gradients(IMAGES, LABELS) for each in (accumulated, whole)]
    assert results[0].loss_sum == pytest.approx(results[1].loss_sum)
    assert results[0].correct == results[1].correct
    assert steps(accumulated, 1, IMAGES[:1], LABELS[:1]).keys()


@pytest.mark.parametrize("method", [EXACT, Method(channels_last=True), Method(dtype="bfloat16"), HALF])
def test_a_training_that_goes_on_takes_the_same_steps(method: Method) -> None:
    engine, other = make(method=method), make(method=method)
    steps(engine)
    state = engine.state()
    other.restore(state, source=0)
    assert digest(steps(engine)) == digest(steps(other))


def test_what_is_kept_does_not_depend_on_where_values_lie() -> None:
    engine, other = make(method=Method(channels_last=True)), make()
    steps(engine)
    other.restore(engine.state(), source=0)
    assert digest(engine.weights()) == digest(other.weights())
    for one, same in zip(engine.state().optimizer.values(), other.state().optimizer.values(), strict=True):
        assert np.array_equal(one, same)


def test_a_step_that_overflows_float16_is_left_out_and_the_scale_halved() -> None:
    engine = make(method=HALF)
    steps(engine, 1)
    state = engine.state()
    before = digest(state.weights)
    assert state.optimizer[SCALE].tolist() == [FIRST_SCALE, 1]
    huge = {**state.optimizer, SCALE: np.array([2.0**30, 7.0])}
    engine.restore(type(state)(weights=state.weights, optimizer=huge), source=0)
    result = engine.compute_gradients(IMAGES, LABELS)
    assert np.isfinite(result.loss_sum)
    engine.update(samples=len(LABELS))
    found = engine.state()
    assert found.optimizer[SCALE].tolist() == [2.0**29, 0]
    assert digest(found.weights) == before
    assert np.array_equal(found.optimizer["momentum"], state.optimizer["momentum"])
    assert digest(steps(engine, 20)) != before


@pytest.mark.parametrize("method", [EXACT, HALF])
def test_an_engine_that_does_not_wait_takes_the_same_steps(method: Method) -> None:
    engine, late = (make(method=method, late=late, network=PERCEPTRON) for late in (False, True))
    first, second = (engine.compute_gradients(IMAGES, LABELS), late.compute_gradients(IMAGES, LABELS))
    assert second.loss_sum == second.correct == 0
    for each in (engine, late):
        each.update(samples=len(LABELS))
    assert late.compute_gradients(IMAGES, LABELS) == replace(first, steps_ago=1)
    assert late.settle() == engine.compute_gradients(IMAGES, LABELS)
    assert late.settle() is engine.settle() is None
    for each in (engine, late):
        each.update(samples=len(LABELS))
    assert distance(late.weights(), engine.weights()) < 1e-6


@pytest.mark.parametrize("method", [EXACT, HALF])
def test_a_loss_that_is_not_finite_changes_nothing_before_it_is_seen(method: Method) -> None:
    engine = make(method=method, late=True, network=PERCEPTRON)
    steps(engine, 2)
    before = engine.state()
    spoilt = IMAGES.copy()
    spoilt[5] = np.nan
    steps(engine, 1, spoilt)
    after = engine.state()
    assert digest(after.weights) == digest(before.weights)
    assert np.array_equal(after.optimizer["momentum"], before.optimizer["momentum"])
    result = engine.settle()
    assert result is not None
    assert np.isnan(result.loss_sum)


def test_only_convolutions_that_we_know_have_their_channels_last_unasked() -> None:
    config = TrainConfig(dtype="bfloat16", compile="1")
    convolutions, none = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1)), torch.nn.Sequential(torch.nn.Linear(1, 1))
    assert given_method(config, convolutions) == Method(dtype="bfloat16", channels_last=True, compiled="1")
    assert not given_method(config, none).channels_last
    assert given_method(TrainConfig(network="mine:build"), convolutions) == EXACT
