"""Test a training step against plain PyTorch, its snapshots, and ranks without samples."""

import threading

import numpy as np
import pytest
import torch
from torch import nn

from tests.trainer.networks import Viewing, resnet8
from trainer.backend import NO_FLAGS, StepFlags
from trainer.checkpoint.manager import CheckpointManager
from trainer.config.settings import TrainConfig
from trainer.data.batches import load_and_transform
from trainer.data.synthetic import make_synthetic
from trainer.distributed.data_parallel import DataParallelGroup
from trainer.distributed.world import World
from trainer.metrics.results import digest
from trainer.models import build
from trainer.torch_backend.backend import StepSettings, TorchBackend
from trainer.torch_backend.create_backend import create_backend
from trainer.train import Trainer

DATA = make_synthetic((1, 28, 28), samples=320)
IMAGES, LABELS = load_and_transform(DATA, DATA.train, np.arange(16))
CPU = torch.device("cpu")
SETTINGS = StepSettings(learning_rate=0.1, momentum=0.9, weight_decay=0)
pytestmark = pytest.mark.usefixtures("one_thread")


def make_backend(*, seed: int = 0, label_smoothing: float = 0.0) -> TorchBackend:
    config = TrainConfig(seed=seed, label_smoothing=label_smoothing)
    return create_backend(config, world=World(), dp=DataParallelGroup(), learning_rate=0.1)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_step_matches_plain_torch(label_smoothing: float) -> None:
    backend = make_backend(label_smoothing=label_smoothing)
    torch.manual_seed(0)
    model = build("lenet", num_classes=10, image_shape=(1, 28, 28))
    weights, biases = (
        [parameter for parameter in model.parameters() if (parameter.dim() > 1) is many] for many in (True, False)
    )
    groups = [{"params": weights, "weight_decay": 0.0001}, {"params": biases, "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    for start in (0, 8):
        images, labels = IMAGES[start : start + 8], LABELS[start : start + 8]
        backend.forward_backward(images, labels)
        backend.optimizer_step(num_samples=8)
        optimizer.zero_grad()
        torch.autograd.backward(
            torch.nn.functional.cross_entropy(
                model(torch.from_numpy(images)), torch.from_numpy(labels), label_smoothing=label_smoothing
            )
        )
        optimizer.step()
    for name, value in model.state_dict().items():
        assert np.allclose(backend.weights()[name], value.numpy(), rtol=1e-5, atol=1e-6), name


def test_users_network_gets_contiguous_images() -> None:
    config = TrainConfig(network="tests.trainer.networks:Viewing", image_shape=(1, 28, 28))
    backend = create_backend(config, world=World(), dp=DataParallelGroup(), learning_rate=0.1)
    assert backend.forward_backward(IMAGES, LABELS).loss_sum > 0
    model = Viewing(num_classes=10)
    model.load_state_dict({name: torch.from_numpy(value) for name, value in backend.weights().items()})
    predictions = model(torch.from_numpy(IMAGES)).argmax(dim=1).numpy()
    assert backend.count_correct(IMAGES, predictions) == len(IMAGES)


def test_same_seed_gives_identical_bits() -> None:
    def run(seed: int) -> str:
        backend = make_backend(seed=seed)
        Trainer(
            backend=backend,
            data=DATA,
            config=TrainConfig(seed=seed, num_epochs=1),
            dp=DataParallelGroup(),
            global_batch_size=32,
            checkpoints=CheckpointManager(TrainConfig(), dp=DataParallelGroup(), store=None),
        ).train()
        return digest(backend.weights())

    assert run(1) == run(1) != run(2)


def test_every_rank_starts_from_rank_0s_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    def receive(weights: torch.Tensor, *, src: int) -> None:
        assert src == 0
        weights.fill_(0.5)

    monkeypatch.setattr("torch.distributed.broadcast", receive)
    dp = DataParallelGroup(rank=1, world_size=2)
    backend = TorchBackend(
        build("lenet", num_classes=10, image_shape=(1, 28, 28)),
        SETTINGS,
        device=CPU,
        dp=dp,
    )
    backend.restore(None, source=0)
    assert all(np.all(value == 0.5) for value in backend.weights().values())


def test_restored_backend_takes_the_same_steps() -> None:
    def step(backend: TorchBackend, start: int) -> None:
        batch = slice(start, start + 8)
        backend.forward_backward(IMAGES[batch], LABELS[batch])
        backend.optimizer_step(num_samples=8)

    backend, other = make_backend(), make_backend(seed=1)
    step(backend, 0)
    state = backend.state()
    step(backend, 8)
    other.restore(state, source=0)
    step(other, 8)
    assert digest(backend.weights()) == digest(other.weights())


def batch_norm_backend() -> TorchBackend:
    """Return the backend of a network whose forward pass changes a buffer that a checkpoint needs."""
    torch.manual_seed(0)
    model = resnet8(num_classes=10, image_shape=(1, 28, 28))
    return TorchBackend(model, SETTINGS, device=CPU, dp=DataParallelGroup())


def test_snapshot_is_unaffected_by_the_next_step() -> None:
    backend = batch_norm_backend()
    before = backend.state()
    take = backend.snapshot()
    backend.forward_backward(IMAGES, LABELS)
    assert digest(backend.weights()) != digest(before.weights)
    taken = take()
    assert digest(taken.weights) == digest(before.weights)
    assert digest(taken.optimizer) == digest(before.optimizer)


class Counting(nn.Module):
    """Network that replaces its buffer's tensor in every step."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.linear = nn.Linear(28 * 28, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.count = self.count + 1
        scores: torch.Tensor = self.linear(images.flatten(1))
        return scores


def test_snapshot_holds_a_buffer_that_the_network_replaced() -> None:
    backend = TorchBackend(Counting(), SETTINGS, device=CPU, dp=DataParallelGroup())
    backend.forward_backward(IMAGES, LABELS)
    take = backend.snapshot()
    backend.forward_backward(IMAGES, LABELS)
    assert take().weights["count"] == 1
    assert backend.state().weights["count"] == 2


class Shared(nn.Module):
    """Network that has one module under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = self.decoder = nn.BatchNorm2d(1)
        self.linear = nn.Linear(28 * 28, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.linear(self.encoder(images).flatten(1))
        return scores


def test_snapshot_copies_a_shared_buffer_under_each_name() -> None:
    backend = TorchBackend(Shared(), SETTINGS, device=CPU, dp=DataParallelGroup())
    before = backend.state().weights
    take = backend.snapshot()
    backend.forward_backward(IMAGES, LABELS)
    taken = take().weights
    for name in ("encoder.running_mean", "decoder.running_mean"):
        assert np.array_equal(taken[name], before[name])
        assert not np.array_equal(backend.state().weights[name], before[name])


def test_update_waits_for_the_snapshot() -> None:
    backend = make_backend()
    before = digest(backend.weights())
    take = backend.snapshot()
    backend.forward_backward(IMAGES, LABELS)
    update = threading.Thread(target=lambda: backend.optimizer_step(num_samples=16))
    update.start()
    update.join(0.2)
    assert update.is_alive()
    assert digest(take().weights) == before
    update.join(60)
    assert digest(backend.weights()) != before


def test_learning_rate_applies_from_the_next_update() -> None:
    backend, slow = make_backend(), make_backend()
    for each, rate in ((backend, 0.1), (slow, 0.001)):
        each.forward_backward(IMAGES, LABELS)
        each.set_learning_rate(rate)
        each.optimizer_step(num_samples=16)
    first = make_backend().weights()
    moved, little = (
        {name: value - first[name] for name, value in trained.weights().items()}  # type: ignore[operator]  # arrays of numbers
        for trained in (backend, slow)
    )
    assert all(np.allclose(moved[name], 100 * little[name], rtol=0.01, atol=1e-5) for name in first)


def test_flags_of_one_rank_reach_all_ranks() -> None:
    backend = make_backend()
    images, labels = IMAGES[:4], LABELS[:4]
    for flags in (NO_FLAGS, StepFlags(save=True), StepFlags(stop=True), NO_FLAGS):
        assert backend.forward_backward(images, labels, flags=flags).flags == flags


def test_rank_without_samples_adds_no_gradient() -> None:
    backend = make_backend()
    backend.forward_backward(IMAGES[:4], LABELS[:4])
    result = backend.forward_backward(IMAGES[:0], LABELS[:0])
    assert (result.loss_sum, result.correct) == (0, 0)
    assert backend.count_correct(IMAGES[:0], LABELS[:0]) == 0
