"""Keep all weights of a network in one flat tensor, and all gradients and momenta too: one operation for all."""

from collections.abc import Sequence

import torch
from torch import nn


def order_by_decay(parameters: Sequence[nn.Parameter], *, decay_all: bool) -> tuple[list[nn.Parameter], int]:
    """Return the parameters, those without weight decay first, and how many values these have.

    Vectors have none: BatchNorm's factors and all biases (Goyal et al. 2017, section 5.1). They come first, since
    the buckets of gradients are sent from the end, where all of one must be ready.
    """
    undecayed = [] if decay_all else [parameter for parameter in parameters if parameter.dim() <= 1]
    apart = {id(parameter) for parameter in undecayed}
    decayed = [parameter for parameter in parameters if id(parameter) not in apart]
    return [*undecayed, *decayed], sum(parameter.numel() for parameter in undecayed)


def views(flat: torch.Tensor, parameters: Sequence[nn.Parameter], *, channels_last: bool) -> list[torch.Tensor]:
    """Return views of the flat tensor, shaped as the parameters one after the other.

    With ``channels_last`` the weights of convolutions lie in memory as torch.channels_last orders them.
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
    """Move the parameters into the flat tensor; they may already lie there in another order."""
    values = flatten([parameter.detach() for parameter in parameters])
    places = views(flat, parameters, channels_last=channels_last)
    fill(places, values)
    for parameter, place in zip(parameters, places, strict=True):
        parameter.data = place


def bind_gradients(parameters: Sequence[nn.Parameter], flat: torch.Tensor, *, channels_last: bool) -> None:
    """Make every parameter's gradient a view of the flat tensor; backward() then adds to it in place."""
    for parameter, part in zip(parameters, views(flat, parameters, channels_last=channels_last), strict=True):
        parameter.grad = part


def flatten(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return a copy of all values in one flat tensor, in logical order whatever their layout in memory."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def fill(tensors: Sequence[torch.Tensor], values: torch.Tensor) -> None:
    """Copy the values of a tensor from ``flatten`` back."""
    for tensor, piece in zip(tensors, torch.split(values, [tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(piece.view_as(tensor))
