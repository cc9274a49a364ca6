"""Test BatchNorm over several ranks: equal statistics on all, and with --sync-bn the same as in one process."""

import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.trainer.distributed.weights import distance
from tests.trainer.programs import stopped_trainer
from tests.trainer.programs.processes import run, running
from trainer.checkpoint.format import load_checkpoint
from trainer.distributed.batch_norm import AllRanksBatchNorm, adapt_batch_norms
from trainer.distributed.data_parallel import DataParallelGroup
from trainer.errors import UsageError
from trainer.models import build
from trainer.torch_backend.backend import StepSettings, TorchBackend

BATCH_SIZE = 37
OPTIONS = (
    *("--network", "tests.trainer.networks:batch_norm_network", "--lr", "0.01", "--warmup-epochs", "3"),
    *("--benchmark", "1", "--image-shape", "3,12,12", "--random-crop", "1", "--random-mirror", "1"),
    *("--kv-store", "dist_sync", "--model-prefix", "net", "--last-batch", "keep"),
)
TOLERANCE = 1e-5


def test_statistics_are_equal_on_all_ranks_and_after_a_resume(tmp_path: Path) -> None:
    # An epoch's last batch is a single sample, which the first rank does not have.
    options = (
        *OPTIONS,
        *("--batch-size", str(BATCH_SIZE), "--num-examples", str(7 * 2 * BATCH_SIZE + 1)),
        *("--num-epochs", "8", "--disp-batches", "1"),
    )
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    world = run(*options, directory=whole, count=2)
    assert world[0].digests == world[1].digests
    weights = load_checkpoint(whole / "net-0008.npz").state.weights
    assert {"1.running_mean", "1.running_var", "7.running_mean"} < set(weights)
    assert not np.array_equal(weights["7.running_var"], np.ones(16, np.float32))

    program, stopped = (str(Path(stopped_trainer.__file__)),), {stopped_trainer.VARIABLE: "0 10 SIGTERM"}
    with running(*options, directory=parts, count=2, program=program, variables=stopped) as interrupted:
        assert [rank.wait() for rank in interrupted] == [128 + signal.SIGTERM] * 2
    resumed = run(*options, directory=parts, count=2)
    assert "resuming at epoch" in resumed[0].log.read_text()
    assert resumed[0].digests[-1] == world[0].digests[-1]


def test_sync_bn_ranks_match_one_process_with_their_batches(tmp_path: Path) -> None:
    # An epoch's last batch has two samples: of three ranks, the first has none and the others have one each.
    options = (*OPTIONS, "--sync-bn", "--num-epochs", "2", "--num-examples", str(7 * 3 * BATCH_SIZE + 2))
    one, three = tmp_path / "one", tmp_path / "three"
    one.mkdir()
    three.mkdir()
    run(*options, "--batch-size", str(3 * BATCH_SIZE), directory=one)
    world = run(*options, "--batch-size", str(BATCH_SIZE), directory=three, count=3)
    assert world[0].digests == world[1].digests == world[2].digests
    paths = (directory / "net-0002.npz" for directory in (three, one))
    assert distance(*(load_checkpoint(path).state.weights for path in paths)) < TOLERANCE


def backend() -> TorchBackend:
    torch.manual_seed(0)
    model = build("tests.trainer.networks:batch_norm_network", num_classes=2, image_shape=(1, 12, 12))
    settings = StepSettings(learning_rate=0.1, momentum=0.9, weight_decay=0)
    return TorchBackend(model, settings, device=torch.device("cpu"), dp=DataParallelGroup())


def step(backend: TorchBackend, samples: int) -> None:
    images = np.random.default_rng(samples).random((samples, 1, 12, 12), np.float32)
    backend.forward_backward(images, np.zeros(samples, np.int64))
    backend.optimizer_step(num_samples=samples)


def test_checkpoint_holds_the_statistics() -> None:
    first, second = backend(), backend()
    step(first, 8)
    second.restore(first.state(), source=0)
    step(first, 4)
    step(second, 4)
    assert all(np.array_equal(value, second.weights()[name]) for name, value in first.weights().items())


@pytest.mark.parametrize("samples", [0, 1])
def test_batch_without_variance_leaves_statistics_and_weights_finite(samples: int) -> None:
    trained = backend()
    step(trained, 8)
    images = np.ones((samples, 1, 12, 12), np.float32)
    trained.forward_backward(images, np.zeros(samples, np.int64))
    trained.optimizer_step(num_samples=1)
    assert all(np.isfinite(value).all() for value in trained.weights().values())


def doubled(values: torch.Tensor) -> None:
    """Sum as if another rank had the same samples."""
    values *= 2


@pytest.mark.parametrize("momentum", [0.1, None])
def test_sync_bn_matches_torchs_batch_norm_over_all_samples(momentum: float | None) -> None:
    plain, synchronized = (torch.nn.BatchNorm2d(3, momentum=momentum).double() for _ in range(2))
    adapt_batch_norms(synchronized, all_reduce=doubled)
    assert isinstance(synchronized, AllRanksBatchNorm)
    generator = torch.Generator().manual_seed(0)
    for _ in range(2):
        one, wanted = torch.randn(2, 4, 3, 5, 5, dtype=torch.float64, generator=generator)
        both = torch.cat([one, one]).requires_grad_()
        own = one.clone().requires_grad_()
        expected, found = plain(both), synchronized(own)
        torch.autograd.backward((expected * torch.cat([wanted, wanted])).sum())
        torch.autograd.backward((found * wanted).sum())
        assert torch.allclose(found, expected[:4])
        assert both.grad is not None
        assert own.grad is not None
        assert torch.allclose(own.grad, both.grad[:4])
    for name in ("running_mean", "running_var"):
        assert torch.allclose(synchronized.get_buffer(name), plain.get_buffer(name)), name


def test_sync_bn_keeps_the_input_type_and_sums_in_higher_precision() -> None:
    synchronized = torch.nn.BatchNorm2d(1)
    adapt_batch_norms(synchronized, all_reduce=lambda _: None)
    values = torch.randn(3, 1, 200, 200, generator=torch.Generator().manual_seed(0)).half()
    result = synchronized(values)
    assert result.dtype == torch.float16
    assert float(result.detach().float().var()) == pytest.approx(1, abs=0.01)


def test_users_batch_norm_subclass_is_not_replaced() -> None:
    class Own(torch.nn.BatchNorm2d):
        pass

    model = torch.nn.Sequential(Own(3))
    adapt_batch_norms(model, all_reduce=None)
    assert type(model[0]) is Own


def test_micro_batch_without_samples_changes_no_statistics() -> None:
    network = torch.nn.Sequential(torch.nn.BatchNorm2d(2))
    adapt_batch_norms(network, all_reduce=lambda sums: None)
    network(torch.randn(4, 2, 3, 3))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    images = torch.empty(0, 2, 3, 3, requires_grad=True)
    torch.autograd.backward(network(images).sum())
    for name, value in network.state_dict().items():
        assert name.endswith("tracked") or torch.equal(value, before[name]), name


class UsersBatchNorm(nn.BatchNorm2d):
    """A user's subclass of BatchNorm."""


def test_sync_bn_refuses_a_batch_norm_subclass() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, kernel_size=3), UsersBatchNorm(2))
    adapt_batch_norms(model, all_reduce=None)
    assert type(model[1]) is UsersBatchNorm
    with pytest.raises(UsageError, match="--sync-bn supports only torch's BatchNorm classes, got UsersBatchNorm"):
        adapt_batch_norms(model, all_reduce=lambda _: None)
