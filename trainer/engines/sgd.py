"""Stochastic gradient descent with momentum and weight decay: the kernel of torch.optim.SGD's ``fused``, to its bits.

torch.optim's classes load torch._dynamo with their first weights, which takes a second or two of a core at the start of
every rank; this one nothing.
"""

import torch
from torch import nn


class Sgd:
    """What torch.optim.SGD does, for weights that are one vector with its gradient."""

    _step_supports_amp_scaling = True
    """For torch.amp.GradScaler: ``step`` looks at the two that follow, which it sets and deletes."""
    grad_scale: torch.Tensor
    found_inf: torch.Tensor

    def __init__(self, weights: nn.Parameter, *, learning_rate: float, momentum: float, weight_decay: float) -> None:
        self.learning_rate = learning_rate
        self.momenta = torch.zeros_like(weights, requires_grad=False)
        """What is left of the updates before, in the order of the weights."""
        self.param_groups = [{"params": [weights]}]
        """Where torch.amp.GradScaler looks for gradients."""
        self._weights = weights
        self._momentum = momentum
        self._weight_decay = weight_decay

    @torch.no_grad()
    def step(self) -> None:
        """Change the weights by their gradient; not where ``found_inf`` is 1, on whatever device: shape ()."""
        assert self._weights.grad is not None
        torch._fused_sgd_(
            [self._weights],
            [self._weights.grad],
            [self.momenta] if self._momentum else [],
            weight_decay=self._weight_decay,
            momentum=self._momentum,
            lr=self.learning_rate,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            # There is a momentum before, if only zeros.
            is_first_step=False,
            grad_scale=getattr(self, "grad_scale", None),
            found_inf=getattr(self, "found_inf", None),
        )
