import pytest
import torch

from trainer.models import IMAGE_SHAPES, build

PARAMETERS = {"lenet": 431_080}
"""LeNet: as Caffe's and MXNet's examples, 520 + 25,050 + 400,500 + 5,010."""


@pytest.mark.parametrize("network", IMAGE_SHAPES)
def test_has_the_size_known_from_the_literature(network: str) -> None:
    assert sum(each.numel() for each in build(network, classes=10).parameters()) == PARAMETERS[network]


@pytest.mark.parametrize("network", IMAGE_SHAPES)
def test_scores_every_class_for_every_image(network: str) -> None:
    scores = build(network, classes=10)(torch.zeros(3, *IMAGE_SHAPES[network]))
    assert scores.shape == (3, 10)
