"""Test the parameters as views of one flat tensor."""

import pytest
import torch
from torch import nn

from trainer.torch_backend.flat_params import bind_parameters, fill, flatten, views


def network() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4, 2))


@pytest.mark.parametrize("channels_last", [False, True])
def test_parameters_are_views_of_the_vector_with_their_values(channels_last: bool) -> None:
    model = network()
    parameters = list(model.parameters())
    before = [parameter.detach().clone() for parameter in parameters]
    vector = torch.empty(sum(parameter.numel() for parameter in parameters))
    for layout in (channels_last, not channels_last, channels_last):
        bind_parameters(parameters, vector, channels_last=layout)
        assert all(torch.equal(parameter, value) for parameter, value in zip(parameters, before, strict=True))
    assert parameters[0].is_contiguous(memory_format=torch.channels_last) is channels_last
    vector.zero_()
    assert not any(parameter.any() for parameter in parameters)


def test_flatten_keeps_the_logical_order_in_any_layout() -> None:
    parameters = list(network().parameters())
    count = sum(parameter.numel() for parameter in parameters)
    values = torch.arange(count, dtype=torch.float32)
    for layout in (False, True):
        places = views(torch.empty(count), parameters, channels_last=layout)
        fill(places, values)
        assert torch.equal(flatten(places), values)
