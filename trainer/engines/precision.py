"""The data type of forward and backward pass: --dtype, by autocast; float16 with gradient scaling.

Weights, gradients, BatchNorm's statistics and the loss stay float32 (Micikevicius et al. 2018, "Mixed Precision
Training"). With float16 the loss is multiplied by a scale, so that small gradients do not become 0. Where a sum of
gradients then is not finite, on all ranks alike, the step is left out and the scale halved; after 2,000 steps without
that it is doubled (torch.amp.GradScaler).
"""

from typing import Final

import torch

from trainer.engines.method import DTYPES
from trainer.engines.sgd import Sgd

FIRST_SCALE: Final = 2.0**8
"""For a loss that is a sum over samples; with 256 of them what GradScaler begins with for a mean, 2^16."""


class Precision:
    """The data type of a training, and its scale."""

    def __init__(self, dtype: str, *, device: torch.device) -> None:
        self._dtype = DTYPES[dtype]
        self._device_type = device.type
        self._scaler = torch.amp.GradScaler(device.type, init_scale=FIRST_SCALE) if dtype == "float16" else None

    def autocast(self) -> torch.autocast:
        """Return what the forward pass runs in."""
        return torch.autocast(self._device_type, dtype=self._dtype, enabled=self._dtype != torch.float32)

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """Return what backward begins with."""
        return loss if self._scaler is None else self._scaler.scale(loss)

    def step(self, optimizer: Sgd, *, unseen_loss: torch.Tensor | None = None) -> None:
        """Let the optimizer change the weights, unless gradients have overflown.

        Nor if the loss, shape (1,), is not finite, where nobody has looked at it yet.
        """
        if self._scaler is not None:
            # A loss that is not finite makes no finite gradients.
            self._scaler.step(optimizer)  # type: ignore[arg-type]  # it has all that is asked of one
            self._scaler.update()
            return
        if unseen_loss is not None:
            # As GradScaler tells it: the device looks, and leaves the step out.
            optimizer.found_inf = (~torch.isfinite(unseen_loss[0])).float()
        optimizer.step()

    @property
    def scale(self) -> torch.Tensor | None:
        """The scale and the steps since it was last changed: shape (2,), on the CPU; None where there is none."""
        if self._scaler is None:
            return None
        state = self._scaler.state_dict()
        return torch.tensor([state["scale"], state["_growth_tracker"]], dtype=torch.float64)

    @scale.setter
    def scale(self, values: torch.Tensor) -> None:
        if self._scaler is not None:
            scale, steps = values.tolist()
            self._scaler.load_state_dict({**self._scaler.state_dict(), "scale": scale, "_growth_tracker": int(steps)})
