"""Test gradients that are sent during the backward pass: on CPUs over gloo, as between GPUs."""

import signal
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.trainer.programs import bucketed_trainer
from tests.trainer.programs.processes import run, running
from trainer.distributed.reduce.gradient_buckets import GradientBuckets, cut_buckets
from trainer.distributed.reduce.reducers import Communicator
from trainer.errors import TrainerError
from trainer.torch_backend.flat_params import bind_gradients

OTHERS = 2
WIDTH = 4
LAYER = WIDTH * WIDTH
FLOAT_BYTES = 4


def test_buckets_are_cut_from_the_end_between_parameters() -> None:
    buckets = cut_buckets([5, 1, 4, 3, 2], min_size=5)
    assert [(bucket.span.start, bucket.span.stop) for bucket in buckets] == [(10, 15), (5, 10), (0, 5)]
    assert [sorted(bucket.parameter_indices) for bucket in buckets] == [[3, 4], [1, 2], [0]]
    assert [bucket.span for bucket in cut_buckets([2, 9, 1], min_size=5)] == [slice(2, 12), slice(0, 2)]
    assert len(cut_buckets([1, 2, 3], min_size=100)) == 1


class Twins(Communicator):
    """Communicator of two ranks with equal values; records each sum, and the first layer's gradient at that time."""

    def __init__(self) -> None:
        super().__init__(world_size=2)
        self.first: torch.Tensor | None = None
        self.calls: list[tuple[int, str]] = []
        self.first_was_there: list[bool] = []

    def all_reduce(self, sums: torch.Tensor, *, compression: str = "none") -> None:
        assert self.first is not None
        self.calls.append((sums.numel(), compression))
        self.first_was_there.append(bool(self.first.any()))
        sums.mul_(2)


class Step:
    """Three layers, of which ``bucket_layers`` form a bucket."""

    def __init__(self, *, compression: str = "none") -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3)))
        self.images = torch.randn(6, WIDTH)
        self.parameters = list(self.model.parameters())
        self.sums = torch.zeros(3 * LAYER + OTHERS)
        self.communicator = Twins()
        self.reduction = GradientBuckets(
            self.sums, self.parameters, communicator=self.communicator, compression=compression
        )
        bind_gradients(self.parameters, self.sums[:-OTHERS], channels_last=False)
        self.communicator.first = self.parameters[0].grad

    def backward(self, images: torch.Tensor) -> None:
        torch.autograd.backward(self.model(images).square().sum())

    @property
    def expected(self) -> torch.Tensor:
        """Return twice the gradients of all images, and twice the ones behind them."""
        loss = self.model(self.images).square().sum()
        gradients = torch.autograd.grad(loss, self.parameters)
        return 2 * torch.cat([*(gradient.view(-1) for gradient in gradients), torch.ones(OTHERS)])


@pytest.fixture
def two_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put two of three layers into each bucket."""
    monkeypatch.setattr("trainer.distributed.reduce.gradient_buckets.BUCKET_BYTES", FLOAT_BYTES * (LAYER + 1))


@pytest.mark.usefixtures("two_layers")
@pytest.mark.parametrize("compression", ["none", "fp16"])
def test_last_layers_are_sent_while_the_first_is_computed(compression: str) -> None:
    step = Step(compression=compression)
    for _ in range(2):
        step.communicator.calls.clear()
        step.communicator.first_was_there.clear()
        step.sums.zero_()
        step.reduction.expect_last_backward()
        step.backward(step.images)
        assert step.communicator.calls == [(2 * LAYER, compression), (LAYER, compression)]
        assert step.communicator.first_was_there == [False, True]
        step.sums[-OTHERS:] = 1
        step.reduction.finish()
        # The values behind the gradients are never rounded.
        assert step.communicator.calls[2:] == [(OTHERS, "none")]
        assert torch.allclose(step.sums, step.expected)


@pytest.mark.usefixtures("two_layers")
def test_only_the_last_accumulated_batch_communicates() -> None:
    step = Step()
    step.backward(step.images[:2])
    step.backward(step.images[2:4])
    assert step.communicator.calls == []
    step.reduction.expect_last_backward()
    step.backward(step.images[4:])
    step.sums[-OTHERS:] = 1
    step.reduction.finish()
    assert len(step.communicator.calls) == 3
    assert torch.allclose(step.sums, step.expected)


@pytest.mark.usefixtures("two_layers")
def test_bucket_order_is_fixed() -> None:
    without, partly = Step(), Step()
    without.reduction.finish()
    partly.reduction.expect_last_backward()
    # The last layer's gradient never arrives, so no bucket may be sent before the end.
    torch.autograd.backward(partly.model[:2](partly.images).sum())
    assert partly.communicator.calls == []
    partly.reduction.finish()
    assert (
        without.communicator.calls
        == partly.communicator.calls
        == [(2 * LAYER, "none"), (LAYER, "none"), (OTHERS, "none")]
    )


@pytest.mark.parametrize("compression", ["none", "fp16"])
def test_single_bucket_is_summed_in_one_operation(compression: str) -> None:
    step = Step(compression=compression)
    step.reduction.expect_last_backward()
    step.backward(step.images)
    assert step.communicator.calls == []
    step.sums[-OTHERS:] = 1
    step.reduction.finish()
    total = 3 * LAYER
    assert step.communicator.calls == (
        [(total + OTHERS, "none")] if compression == "none" else [(total, "fp16"), (OTHERS, "none")]
    )
    assert torch.allclose(step.sums, step.expected)


@pytest.mark.usefixtures("two_layers")
def test_repeated_gradient_is_reported() -> None:
    step = Step()
    step.reduction.expect_last_backward()
    step.backward(step.images)
    with pytest.raises(TrainerError, match="a parameter got two gradients in one backward pass"):
        step.backward(step.images)


BATCH_SIZE = 37
PROGRAM = (str(Path(bucketed_trainer.__file__)),)
# An epoch's last batch is a single sample, which the first rank does not have.
OPTIONS = (
    *("--network", "tests.trainer.networks:batch_norm_network", "--lr", "0.01", "--kv-store", "dist_sync"),
    *(
        "--benchmark",
        "1",
        "--image-shape",
        "3,12,12",
        "--num-examples",
        str(5 * 2 * 2 * BATCH_SIZE + 1),
        "--last-batch",
        "keep",
    ),
    *("--batch-size", str(BATCH_SIZE), "--gradient-accumulation", "2", "--sync-bn"),
    *("--num-epochs", "3", "--disp-batches", "1", "--model-prefix", "net"),
)


def test_buckets_and_flat_vector_give_the_same_bits_after_a_resume(tmp_path: Path) -> None:
    flat, overlapped, dropped = (tmp_path / name for name in ("flat", "overlapped", "dropped"))
    for span in (flat, overlapped, dropped):
        span.mkdir()
    expected = run(*OPTIONS, directory=flat, count=2)
    # In the second of three epochs, of six steps with three buckets each.
    stopped = {bucketed_trainer.LAST: "22"}
    with running(*OPTIONS, directory=overlapped, count=2, program=PROGRAM, variables=stopped) as interrupted:
        assert [rank.wait() for rank in interrupted] == [128 + signal.SIGTERM] * 2
    ranks = run(*OPTIONS, directory=overlapped, count=2, program=PROGRAM)
    assert "resuming at epoch" in ranks[0].log.read_text()
    # The sum of two numbers has the same bits in either order.
    assert {rank.digests[-1] for rank in ranks} == {expected[0].digests[-1]}

    options = (*OPTIONS, "--num-epochs", "1")
    lacking = run(*options, directory=dropped, count=2, program=PROGRAM, variables={bucketed_trainer.DROPPED: "8"})
    assert lacking[0].digests != lacking[1].digests
