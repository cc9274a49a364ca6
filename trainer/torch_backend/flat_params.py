"""Keep the weights, gradients and momentum buffers of a network in one flat tensor each: one operation handles all.

weights | parameters without weight decay (biases, BatchNorm) | parameters with it |
        momentum buffers and gradients have the same layout; parameter.data and parameter.grad are views
"""

from collections.abc import Sequence

import torch
from torch import nn

from trainer.torch_backend.optimizer import ParamGroup


class FlatParams:
    """The trainable weights of a network and their momentum buffers, each in one flat tensor."""

    def __init__(self, model: nn.Module, *, decay_all: bool) -> None:
        """Copy the weights; weights without decay come first (order_by_decay)."""
        trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.parameters, self._no_decay_count = order_by_decay(trainable, decay_all=decay_all)
        indices = {id(parameter): index for index, parameter in enumerate(self.parameters)}
        self.network_order = [indices[id(parameter)] for parameter in trainable]
        """Indices into ``parameters`` in the order of the network, which checkpoints use."""
        self.weights = flatten([parameter.detach() for parameter in self.parameters])
        self.momentum_buffers = torch.zeros_like(self.weights)
        self._momentum_views = views(self.momentum_buffers, self.parameters, channels_last=False)
        """The momentum buffers with the parameters' shapes."""

    def bind(self, *, channels_last: bool) -> None:
        """Make every parameter a view of the flat weights, and store both tensors in this memory layout."""
        values = flatten(self._momentum_views)
        bind_parameters(self.parameters, self.weights, channels_last=channels_last)
        self._momentum_views = views(self.momentum_buffers, self.parameters, channels_last=channels_last)
        fill(self._momentum_views, values)

    def groups(self, *, weight_decay: float) -> list[ParamGroup]:
        """Return the optimizer's groups when every parameter has its own gradient tensor."""
        spans = ((slice(0, self._no_decay_count), 0.0), (slice(self._no_decay_count, None), weight_decay))
        groups = (ParamGroup([*self.parameters[span]], self._momentum_views[span], decay) for span, decay in spans)
        return [group for group in groups if group.weights]

    def flat_groups(self, gradients: torch.Tensor, *, weight_decay: float) -> list[ParamGroup]:
        """Return the optimizer's groups when the gradients are one flat tensor too."""
        split_at = sum(parameter.numel() for parameter in self.parameters[: self._no_decay_count])
        groups = []
        for span, decay in ((slice(0, split_at), 0.0), (slice(split_at, self.weights.numel()), weight_decay)):
            if span.start < span.stop:
                part = nn.Parameter(self.weights[span])
                part.grad = gradients[span]
                groups.append(ParamGroup([part], [self.momentum_buffers[span]], decay))
        return groups

    def load_momentum_buffers(self, values: torch.Tensor) -> None:
        """Load the momentum buffers of a checkpoint."""
        fill([self._momentum_views[index] for index in self.network_order], values)


def order_by_decay(parameters: Sequence[nn.Parameter], *, decay_all: bool) -> tuple[list[nn.Parameter], int]:
    """Return the parameters, first those without weight decay, and the number of parameters without weight decay.

    BatchNorm's factors and all biases have no decay (Goyal et al. 2017, section 5.1). Every layer has such parameters.
    They come first, in the bucket that is sent last; elsewhere they would delay other buckets.
    """
    no_decay = [] if decay_all else [parameter for parameter in parameters if parameter.dim() <= 1]
    no_decay_ids = {id(parameter) for parameter in no_decay}
    decayed = [parameter for parameter in parameters if id(parameter) not in no_decay_ids]
    return [*no_decay, *decayed], len(no_decay)


def views(flat: torch.Tensor, parameters: Sequence[nn.Parameter], *, channels_last: bool) -> list[torch.Tensor]:
    """Return views of the flat tensor with the shapes of the parameters, in their order.

    With ``channels_last`` the weights of convolutions have torch.channels_last as memory format.
    """
    pieces = torch.split(flat, [parameter.numel() for parameter in parameters])
    return [
        _view(piece, parameter, channels_last=channels_last)
        for piece, parameter in zip(pieces, parameters, strict=True)
    ]


def _view(piece: torch.Tensor, parameter: nn.Parameter, *, channels_last: bool) -> torch.Tensor:
    if not (channels_last and parameter.dim() == 4):
        return piece.view_as(parameter)
    out_channels, in_channels, height, width = parameter.shape
    return piece.view(out_channels, height, width, in_channels).permute(0, 3, 1, 2)


def bind_parameters(parameters: Sequence[nn.Parameter], flat: torch.Tensor, *, channels_last: bool) -> None:
    """Move the parameters into the flat tensor; they may already be views of it in another layout."""
    values = flatten([parameter.detach() for parameter in parameters])
    parts = views(flat, parameters, channels_last=channels_last)
    fill(parts, values)
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.data = part


def bind_gradients(parameters: Sequence[nn.Parameter], flat: torch.Tensor, *, channels_last: bool) -> None:
    """Make every parameter's gradient a view of the flat tensor; backward() then adds to it in place."""
    for parameter, part in zip(parameters, views(flat, parameters, channels_last=channels_last), strict=True):
        parameter.grad = part


def flatten(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return a copy of all values in one flat tensor, in logical order, independent of the memory layout."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def fill(tensors: Sequence[torch.Tensor], values: torch.Tensor) -> None:
    """Copy the values of a tensor that ``flatten`` returned back into the tensors."""
    for tensor, piece in zip(tensors, torch.split(values, [tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(piece.view_as(tensor))
