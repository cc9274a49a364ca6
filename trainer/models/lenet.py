"""Build LeNet as in MXNet's example: the network of LeCun et al. (1998) with Caffe's widths.

431,080 parameters with 10 classes and 28x28 images of one channel.
"""

from torch import nn


def build(*, num_classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    """Build LeNet for images of (channels, height, width), at least 16x16."""
    channels, height, width = image_shape
    layers = (
        nn.Conv2d(channels, 20, kernel_size=5),
        nn.Tanh(),
        nn.MaxPool2d(kernel_size=2, stride=2),
        nn.Conv2d(20, 50, kernel_size=5),
        nn.Tanh(),
        nn.MaxPool2d(kernel_size=2, stride=2),
        nn.Flatten(),
        nn.Linear(50 * _reduced_side(height) * _reduced_side(width), 500),
        nn.Tanh(),
        nn.Linear(500, num_classes),
    )
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.xavier_normal_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


def _reduced_side(side: int) -> int:
    """Return the pixels of a side after both convolutions (4 less) and poolings (half)."""
    return ((side - 4) // 2 - 4) // 2
