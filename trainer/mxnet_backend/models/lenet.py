"""Build LeNet for MXNet, as trainer.models.lenet does for torch.

It has 431,080 parameters with 10 classes and 28x28 images of one channel.
"""

from mxnet import init
from mxnet.gluon import nn


def build(*, num_classes: int, image_shape: tuple[int, int, int]) -> nn.HybridBlock:
    """Build LeNet. Weights as from torch's xavier_normal_: variance 2 / (inputs + outputs)."""
    channels, height, width = image_shape
    network = nn.HybridSequential()
    network.add(
        nn.Conv2D(20, kernel_size=5, in_channels=channels),
        nn.Activation("tanh"),
        nn.MaxPool2D(pool_size=2, strides=2),
        nn.Conv2D(50, kernel_size=5, in_channels=20),
        nn.Activation("tanh"),
        nn.MaxPool2D(pool_size=2, strides=2),
        nn.Flatten(),
        nn.Dense(500, in_units=50 * _remaining(height) * _remaining(width)),
        nn.Activation("tanh"),
        nn.Dense(num_classes, in_units=500),
    )
    network.initialize(init.Xavier(rnd_type="gaussian", factor_type="avg", magnitude=1))
    return network


def _remaining(side: int) -> int:
    """Return the pixels of a side after both convolutions (4 less each) and poolings (half each)."""
    return ((side - 4) // 2 - 4) // 2
