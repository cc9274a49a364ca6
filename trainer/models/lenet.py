"""LeNet as in MXNet's example: the network of LeCun et al. (1998) with Caffe's widths.

For 28x28 images; 431,080 weights with 10 classes.
"""

from torch import nn


def build(*, classes: int) -> nn.Module:
    """Build LeNet."""
    layers = (
        nn.Conv2d(1, 20, kernel_size=5),
        nn.Tanh(),
        nn.MaxPool2d(kernel_size=2, stride=2),
        nn.Conv2d(20, 50, kernel_size=5),
        nn.Tanh(),
        nn.MaxPool2d(kernel_size=2, stride=2),
        nn.Flatten(),
        nn.Linear(50 * 4 * 4, 500),
        nn.Tanh(),
        nn.Linear(500, classes),
    )
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.xavier_normal_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)
