"""All weights of a network in one vector, and all gradients and momenta in one each: one operation does for all."""

from collections.abc import Sequence

import torch
from torch import nn


def parts(vector: torch.Tensor, parameters: Sequence[nn.Parameter], *, channels_last: bool) -> list[torch.Tensor]:
    """Return views of the vector, shaped as the parameters one after the other.

    With ``channels_last`` the weights of convolutions lie as torch.channels_last has them.
    """
    pieces = torch.split(vector, [parameter.numel() for parameter in parameters])
    return [
        _view(piece, parameter, channels_last=channels_last)
        for piece, parameter in zip(pieces, parameters, strict=True)
    ]


def _view(piece: torch.Tensor, parameter: nn.Parameter, *, channels_last: bool) -> torch.Tensor:
    if not (channels_last and parameter.dim() == 4):
        return piece.view_as(parameter)
    after, before, height, width = parameter.shape
    return piece.view(after, height, width, before).permute(0, 3, 1, 2)


def place(parameters: Sequence[nn.Parameter], vector: torch.Tensor, *, channels_last: bool) -> None:
    """Move the parameters into the vector; they may be there already, in another order."""
    values = flattened([parameter.detach() for parameter in parameters])
    views = parts(vector, parameters, channels_last=channels_last)
    fill(views, values)
    for parameter, view in zip(parameters, views, strict=True):
        parameter.data = view


def place_gradients(parameters: Sequence[nn.Parameter], vector: torch.Tensor, *, channels_last: bool) -> None:
    """Let every parameter's gradient be a part of the vector; backward() adds to it in place."""
    for parameter, part in zip(parameters, parts(vector, parameters, channels_last=channels_last), strict=True):
        parameter.grad = part


def flattened(views: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return a copy of all values in one vector, in the same order wherever they lie."""
    return torch.cat([view.reshape(-1) for view in views])


def fill(views: Sequence[torch.Tensor], values: torch.Tensor) -> None:
    """Put values back that ``flattened`` has returned."""
    for view, piece in zip(views, torch.split(values, [view.numel() for view in views]), strict=True):
        view.copy_(piece.view_as(view))
