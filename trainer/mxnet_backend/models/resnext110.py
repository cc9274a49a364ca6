"""Build the ResNeXt-110 of trainer.models.resnext110 for MXNet, with the same layers and initial weights.

With 10 classes and three channels: 1,730,973 parameters.
"""

from typing import TYPE_CHECKING, Final

from mxnet import init
from mxnet.gluon import nn

from trainer.mxnet_backend.models.cifar_resnet import convolution, sequence

if TYPE_CHECKING:
    from types import ModuleType

    from mxnet.ndarray import NDArray

WIDTHS: Final = (16, 32, 64)
BLOCKS: Final = 18
"""Blocks in a stage: (110 - 2) / 6."""
EPSILON: Final = 2e-5


def build(*, num_classes: int, image_shape: tuple[int, int, int]) -> nn.HybridBlock:
    """Build the network for images of (channels, height, width)."""
    input_norm = nn.BatchNorm(in_channels=image_shape[0], epsilon=EPSILON, scale=False)
    stem = sequence(input_norm, convolution(image_shape[0], WIDTHS[0]))
    stages = (_stage(WIDTHS[0], 16, stride=1), _stage(16, 32, stride=2), _stage(32, 64, stride=2))
    last = nn.Dense(num_classes, in_units=WIDTHS[-1])
    network = sequence(stem, *stages, nn.GlobalAvgPool2D(), nn.Flatten(), last)
    network.initialize(init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=2))
    return network


class Block(nn.HybridBlock):  # type: ignore[misc]  # MXNet has no types
    """Two convolutions and a shortcut around them, which has parameters in the first block of a stage."""

    def __init__(self, in_channels: int, out_channels: int, *, stride: int, first: bool) -> None:
        super().__init__()
        self.residual = sequence(
            convolution(in_channels, out_channels, stride=stride),
            _batch_norm(out_channels),
            nn.Activation("relu"),
            convolution(out_channels, out_channels),
            _batch_norm(out_channels),
        )
        projection = (
            (convolution(in_channels, out_channels, stride=stride, kernel=1), _batch_norm(out_channels))
            if first
            else ()
        )
        self.shortcut = sequence(*projection)

    def hybrid_forward(self, F: "ModuleType", images: "NDArray") -> "NDArray":  # noqa: N803 (MXNet's name)
        """Map (samples, in_channels, height, width) to (samples, out_channels, height / stride, width / stride)."""
        return F.relu(self.residual(images) + self.shortcut(images))


def _stage(in_channels: int, out_channels: int, *, stride: int) -> nn.HybridSequential:
    rest = (Block(out_channels, out_channels, stride=1, first=False) for _ in range(BLOCKS - 1))
    return sequence(Block(in_channels, out_channels, stride=stride, first=True), *rest)


def _batch_norm(channels: int) -> nn.BatchNorm:
    return nn.BatchNorm(in_channels=channels, epsilon=EPSILON)
