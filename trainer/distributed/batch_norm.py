"""Adapt BatchNorm to several ranks: average its running statistics, and with --sync-bn normalize by the global batch.

Without ``--sync-bn`` every rank normalizes by the mean and variance of its own samples, so that n ranks with batch b
differ from one rank with batch n*b; validation uses the sample-weighted mean of the ranks' running statistics. With it
the results are the same. Formulas: Ioffe and Szegedy (2015), "Batch Normalization", section 3. torch.nn.SyncBatchNorm
works only on GPUs.
"""

from collections.abc import Callable, Iterator
from typing import Final

import torch
from torch import nn
from torch.nn.functional import batch_norm

# The base class of all dimensions is private.
from torch.nn.modules.batchnorm import _BatchNorm

from trainer.errors import UsageError

TORCH_CLASSES: Final = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
AllReduce = Callable[[torch.Tensor], None]
"""Function that replaces a tensor by its sum over all ranks."""


def adapt_batch_norms(model: nn.Module, *, all_reduce: AllReduce | None) -> None:
    """Make every BatchNorm accept a shard of one sample; with ``all_reduce`` also share its statistics.

    Raises UsageError when it cannot share the statistics of a user's subclass.
    """
    for module in batch_norms(model):
        if type(module) not in TORCH_CLASSES:
            if all_reduce is not None:
                raise UsageError(f"--sync-bn supports only torch's BatchNorm classes, got {type(module).__qualname__}")
            continue  # Leave a user's subclass unchanged.
        # Change the class in place, as torch's lazy modules do, to keep weights, buffers and hooks.
        module.__class__ = LocalBatchNorm if all_reduce is None else AllRanksBatchNorm
        module.all_reduce = all_reduce  # type: ignore[assignment]  # the new class has it


def batch_norms(model: nn.Module) -> Iterator[_BatchNorm]:
    """Yield every BatchNorm of the network."""
    return (module for module in model.modules() if isinstance(module, _BatchNorm))


def flatten_statistics(model: nn.Module) -> torch.Tensor:
    """Move all running means and variances into one flat tensor and return it; the network uses views of it."""
    modules = [module for module in batch_norms(model) if module.running_mean is not None]
    device = next(model.parameters()).device
    vector = torch.empty(sum(2 * module.num_features for module in modules), device=device)
    rest = vector
    for module in modules:
        for name in ("running_mean", "running_var"):
            part, rest = rest[: module.num_features], rest[module.num_features :]
            part.copy_(getattr(module, name))
            setattr(module, name, part)
        if module.momentum is not None:
            # It counts this rank's batches, needed only for cumulative averages; a rank without samples would differ.
            module.num_batches_tracked = None
    return vector


class LocalBatchNorm(_BatchNorm):
    """Normalizes by this rank's samples."""

    def _check_input_dim(self, input: torch.Tensor) -> None:  # noqa: A002 (torch's name)
        """Skip the check: the network was built for its images."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 (torch's name)
        """Normalize (samples, channels, ...); use the running statistics for a single value per channel."""
        if self.training and self.running_mean is not None and input.numel() == input.size(1):
            # One value has no variance; torch would reject the last shard of an epoch.
            return batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return super().forward(input)


class AllRanksBatchNorm(LocalBatchNorm):
    """Normalizes by the samples of all ranks. Every rank must call it, also with no samples."""

    all_reduce: AllReduce

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 (torch's name)
        """Normalize (samples, channels, ...)."""
        if not self.training:
            return super().forward(input)
        # Half precision would round counts and sums.
        values = input.to(torch.promote_types(input.dtype, torch.float32))
        count, mean, variance = _moments(values.detach(), self.all_reduce)
        if self.running_mean is not None and self.running_var is not None:
            share = self.momentum if self.momentum is not None else self._cumulative_share()
            unbiased = variance * count / (count - 1).clamp(min=1)
            for running, new in ((self.running_mean, mean), (self.running_var, unbiased)):
                # The count is 0 if a small batch has more micro-batches than samples.
                running.lerp_(torch.where(count > 0, new, running).to(running.dtype), share)
        scale = (variance + self.eps).rsqrt().to(values.dtype)
        normal: torch.Tensor = _Normalize.apply(  # type: ignore[no-untyped-call]  # untyped in torch
            values, mean.to(values.dtype), scale, count.to(values.dtype), self.all_reduce
        )
        if self.affine:
            normal = normal * _by_channel(self.weight, values) + _by_channel(self.bias, values)
        return normal.to(input.dtype)

    def _cumulative_share(self) -> float:
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        return 1 / float(self.num_batches_tracked)


class _Normalize(torch.autograd.Function):
    """Computes (x - mean) * scale, where mean and scale depend on the values of all ranks."""

    @staticmethod
    def forward(
        context: torch.autograd.function.FunctionCtx,
        values: torch.Tensor,
        mean: torch.Tensor,
        scale: torch.Tensor,
        count: torch.Tensor,
        all_reduce: AllReduce,
    ) -> torch.Tensor:
        """Normalize (samples, channels, ...) by one mean and scale per channel, over ``count`` values of all ranks."""
        normal = (values - _by_channel(mean, values)) * _by_channel(scale, values)
        context.save_for_backward(normal, scale, count)
        context.all_reduce = all_reduce  # type: ignore[attr-defined]  # a context takes any attribute
        return normal

    @staticmethod
    def backward(
        context: torch.autograd.function.FunctionCtx, gradient: torch.Tensor
    ) -> tuple[torch.Tensor, None, None, None, None]:
        """Return the gradient of all ranks' loss with respect to this rank's values."""
        normal, scale, count = context.saved_tensors  # type: ignore[attr-defined]  # as above
        axes = _all_but_channels(gradient)
        sums = torch.stack([gradient.sum(axes), (gradient * normal).sum(axes)])
        context.all_reduce(sums)  # type: ignore[attr-defined]  # as above
        mean, along = sums / count.clamp(min=1)
        centered = gradient - _by_channel(mean, gradient) - normal * _by_channel(along, gradient)
        return centered * _by_channel(scale, gradient), None, None, None, None


def _moments(values: torch.Tensor, all_reduce: AllReduce) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the number of values per channel on all ranks, their mean and their variance, in double precision."""
    axes = _all_but_channels(values)
    count = values.numel() // values.size(1)
    mean = values.sum(axes) / max(count, 1)
    # Sum squares around this rank's mean in single precision; the corrections are small, and in double precision.
    squares = (values - _by_channel(mean, values)).square().sum(axes).double()
    mean = mean.double()
    sums = torch.stack([torch.full_like(mean, count), count * mean, squares + count * mean.square()])
    all_reduce(sums)
    total = sums[0, 0]
    mean = sums[1] / total.clamp(min=1)
    return total, mean, (sums[2] / total.clamp(min=1) - mean.square()).clamp(min=0)


def _all_but_channels(values: torch.Tensor) -> list[int]:
    return [axis for axis in range(values.dim()) if axis != 1]


def _by_channel(vector: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return vector.view(1, -1, *[1] * (values.dim() - 2))
