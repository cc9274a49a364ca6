"""Define Figure 1's network for both frameworks: as many weights as ResNet-50 has, with little to compute.

Eight fully connected layers for images of 1x28x28 have 25,602,010 weights; ResNet-50 has 25,557,032. A weight here is
used once per sample, while a convolution uses its weights at every position of an image. So two shared cores finish
their part quickly, and the links determine the time of a step. The file is copied to the nodes, where the trainer finds
it: ``--network _wide:in_torch``.
"""

from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mxnet.gluon import HybridBlock
    from torch import nn

IMAGE_SHAPE: Final = (1, 28, 28)
NUM_CLASSES: Final = 10
HIDDEN: Final = (2000,) * 7


def layers(*, num_classes: int, image_shape: tuple[int, int, int]) -> list[tuple[int, int]]:
    """Return the inputs and outputs of each layer."""
    return list(pairwise((prod(image_shape), *HIDDEN, num_classes)))


WEIGHTS: Final = sum((before + 1) * after for before, after in layers(num_classes=NUM_CLASSES, image_shape=IMAGE_SHAPE))


def in_torch(*, num_classes: int, image_shape: tuple[int, int, int]) -> "nn.Module":
    """Build it for PyTorch."""
    from torch import nn

    network = nn.Sequential(nn.Flatten())
    for before, after in layers(num_classes=num_classes, image_shape=image_shape):
        network.extend([nn.Linear(before, after), nn.ReLU()])
    # The scores have no activation.
    return network[:-1]


def in_gluon(*, num_classes: int, image_shape: tuple[int, int, int]) -> "HybridBlock":
    """Build it for MXNet."""
    from mxnet import init
    from mxnet.gluon import nn

    *first, (before, after) = layers(num_classes=num_classes, image_shape=image_shape)
    network = nn.HybridSequential()
    network.add(nn.Flatten(), *(nn.Dense(out, in_units=inputs, activation="relu") for inputs, out in first))
    network.add(nn.Dense(after, in_units=before))
    network.initialize(init.Xavier())
    return network
