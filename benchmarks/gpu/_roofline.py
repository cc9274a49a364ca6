"""Compute the shortest possible time of a training step on a GPU from its arithmetic and its memory traffic.

Every convolution and matrix product, forward and backward, takes at least its operations over the device's rate, and
its inputs and outputs over the memory's bandwidth, whichever is longer; they run one after the other. Everything else
(BatchNorm, activations, sums, the optimizer) counts as free, as if it were fused into them. No step can be faster.
Williams et al. (2009), "Roofline: An Insightful Visual Performance Model for Multicore Architectures".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

BANDWIDTHS: Final[Mapping[str, float]] = {
    "NVIDIA A100-SXM4-80GB": 2.039e12,
    "NVIDIA H100 80GB HBM3": 3.35e12,
    "NVIDIA H200": 4.8e12,
}
"""Bytes per second by device name, from the datasheets that trainer.metrics.flops cites."""


@dataclass(slots=True)
class StepWork:
    """Work of all convolutions and matrix products."""

    operations: float = 0.0
    bytes: float = 0.0
    parts: list[tuple[float, float]] = field(default_factory=list)
    """Operations and bytes of each."""

    def floor(self, *, operations_s: float, bytes_s: float) -> float:
        """Return the shortest time in seconds on a device with these rates."""
        return sum(max(operations / operations_s, moved / bytes_s) for operations, moved in self.parts)


class _Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]  # untyped in torch
    """Records each operation that has a formula in torch.utils.flop_counter."""

    def __init__(self, work: StepWork, *, width: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped in torch
        self._work = work
        self._width = width

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if (formula := flop_registry.get(func._overloadpacket)) is not None:
            tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
            moved = float(self._width * sum(tensor.numel() for tensor in tensors))
            operations = float(formula(*args, **kwargs, out_val=result))
            self._work.operations += operations
            self._work.bytes += moved
            self._work.parts.append((operations, moved))
        return result


def work_of_step(model: nn.Module, images_shape: tuple[int, ...], *, width: int) -> StepWork:
    """Count forward and backward pass of a batch with ``width`` bytes per value, without computing anything."""
    tensors = dict([*model.named_parameters(), *model.named_buffers()])
    state = {name: value.detach().to("meta").requires_grad_(value.requires_grad) for name, value in tensors.items()}
    work = StepWork()
    labels = torch.empty(images_shape[0], dtype=torch.int64, device="meta")
    with _Counting(work, width=width):
        loss = cross_entropy(functional_call(model, state, (torch.empty(images_shape, device="meta"),)), labels)
        torch.autograd.grad(loss, [value for value in state.values() if value.requires_grad])
    return work
