"""Build VGG-16: Simonyan and Zisserman (2014), "Very Deep Convolutional Networks", table 1, configuration D.

The network of MXNet's example for ``--network vgg --num-layers 16``. Biases start at zero, convolutions as in He et al.
(2015), "Delving Deep into Rectifiers", linear layers with a standard deviation of 0.01.
138,357,544 parameters with 1,000 classes and 224x224 images of three channels.
"""

from itertools import pairwise
from typing import Final

from torch import nn

from trainer.models.alexnet import classifier, start

WIDTHS: Final = (64, 128, 256, 512, 512)
CONVOLUTIONS: Final = (2, 2, 3, 3, 3)
"""Convolutions of 3x3 before each pooling."""


def build(*, num_classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    """Build VGG-16 for images of (channels, height, width), at least 32x32."""
    channels, height, width = image_shape
    layers: list[nn.Module] = []
    for (before, after), count in zip(pairwise((channels, *WIDTHS)), CONVOLUTIONS, strict=True):
        for number in range(count):
            layers += [nn.Conv2d(after if number else before, after, kernel_size=3, padding=1), nn.ReLU()]
        layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
    halvings = 2 ** len(WIDTHS)
    inputs = WIDTHS[-1] * (height // halvings) * (width // halvings)
    return nn.Sequential(*layers, nn.Flatten(), *classifier(inputs, num_classes=num_classes)).apply(start)
