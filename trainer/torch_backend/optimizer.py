"""Update the weights: SGD with momentum and weight decay, and loss scaling for float16.

Weights, gradients, BatchNorm's statistics and the loss stay float32 with every --dtype (Micikevicius et al. 2018,
"Mixed Precision Training"). With float16 the loss is multiplied by a scale, so that small gradients do not become 0.
When the summed gradients are not finite, all ranks skip the step and halve the scale; after 2,000 steps without an
overflow they double it (torch.amp.GradScaler).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import torch
from torch.optim.sgd import sgd

from trainer.torch_backend.compute_mode import DTYPES

FIRST_SCALE: Final = 2.0**8
"""Loss scale for a sum over samples. With 256 samples it equals GradScaler's default for a mean, 2^16."""


class ParamGroup(NamedTuple):
    """Weights with the same weight decay: single parameters, or a flat tensor of several."""

    weights: list[torch.Tensor]
    momentum_buffers: list[torch.Tensor]
    weight_decay: float


class SGD:
    """torch.optim.SGD without its import of torch._dynamo, with the same kernel and bit-identical results.

    The import takes one to two CPU seconds when a rank starts, which the benchmark first_step measures. The functional
    form does not need it.
    """

    _step_supports_amp_scaling = True
    """Flag for torch.amp.GradScaler: ``step`` uses the next two attributes, which GradScaler sets and deletes."""
    grad_scale: torch.Tensor
    found_inf: torch.Tensor

    def __init__(self, groups: Sequence[ParamGroup], *, learning_rate: float, momentum: float) -> None:
        self.learning_rate = learning_rate
        self.param_groups = [{"params": group.weights} for group in groups]
        """The parameters whose gradients torch.amp.GradScaler checks."""
        self._groups = groups
        self._momentum = momentum

    @torch.no_grad()
    def step(self) -> None:
        """Update the weights; the kernel skips the update if ``found_inf``, shape (), is 1."""
        for group in self._groups:
            sgd(
                group.weights,
                [_gradient(weights) for weights in group.weights],
                # For None with momentum, torch would allocate a buffer; here it starts as zeros.
                [buffer if self._momentum else None for buffer in group.momentum_buffers],
                fused=True,
                grad_scale=getattr(self, "grad_scale", None),
                found_inf=getattr(self, "found_inf", None),
                weight_decay=group.weight_decay,
                momentum=self._momentum,
                lr=self.learning_rate,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )


def _gradient(weights: torch.Tensor) -> torch.Tensor:
    assert weights.grad is not None
    return weights.grad


class Precision:
    """Data type of the forward and backward pass (--dtype), and the loss scaling that float16 needs."""

    def __init__(self, dtype: str, *, device: torch.device) -> None:
        self._dtype = DTYPES[dtype]
        self._device_type = device.type
        self._scaler = torch.amp.GradScaler(device.type, init_scale=FIRST_SCALE) if dtype == "float16" else None
        if self._scaler is not None:
            # GradScaler creates its scale at the first loss; a rank without samples has none.
            self._scaler.scale(torch.zeros((), device=device))

    def autocast(self) -> torch.autocast:
        """Return the context of the forward pass."""
        return torch.autocast(self._device_type, dtype=self._dtype, enabled=self._dtype != torch.float32)

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the loss, scaled for the backward pass."""
        return loss if self._scaler is None else self._scaler.scale(loss)

    def step(self, optimizer: SGD, *, deferred_loss: torch.Tensor | None = None) -> None:
        """Update the weights, unless the gradients overflowed.

        ``deferred_loss``, shape (1,): a loss still on the device; skip the update if it is not finite.
        """
        if self._scaler is not None:
            # GradScaler checks the gradients, which are not finite if the loss is not.
            self._scaler.step(optimizer)  # type: ignore[arg-type]  # SGD has the attributes that it uses
            self._scaler.update()
            return
        if deferred_loss is not None:
            # Let the kernel skip the update, as GradScaler does: reading the loss would wait for the device.
            optimizer.found_inf = (~torch.isfinite(deferred_loss[0])).float()
        optimizer.step()

    @property
    def scale(self) -> torch.Tensor | None:
        """Loss scale and steps since it last changed, shape (2,), on the CPU; None without scaling."""
        if self._scaler is None:
            return None
        state = self._scaler.state_dict()
        return torch.tensor([state["scale"], state["_growth_tracker"]], dtype=torch.float64)

    @scale.setter
    def scale(self, values: torch.Tensor) -> None:
        if self._scaler is not None:
            scale, steps = values.tolist()
            self._scaler.load_state_dict({**self._scaler.state_dict(), "scale": scale, "_growth_tracker": int(steps)})
