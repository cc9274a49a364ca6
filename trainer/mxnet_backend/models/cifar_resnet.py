"""Build ResNet for CIFAR with MXNet: He et al. (2015), "Deep Residual Learning for Image Recognition", section 4.2.

6n+2 layers with parameters: one convolution, three stages of n blocks with 16, 32 and 64 channels, one linear layer.
Shortcuts are the paper's option A, so that they have no parameters of their own: every second pixel, and zeros for the
channels that are new. With 10 classes and three channels ResNet-20 has 269,722 parameters, ResNet-110 1,727,962
(the paper: 0.27 M and 1.7 M).
"""

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from mxnet import init
from mxnet.gluon import nn

if TYPE_CHECKING:
    from types import ModuleType

    from mxnet.ndarray import NDArray

WIDTHS: Final = (16, 32, 64)


def resnet20(*, num_classes: int, image_shape: tuple[int, int, int]) -> nn.HybridBlock:
    """Build ResNet-20."""
    return build(20, num_classes=num_classes, image_shape=image_shape)


def resnet110(*, num_classes: int, image_shape: tuple[int, int, int]) -> nn.HybridBlock:
    """Build ResNet-110."""
    return build(110, num_classes=num_classes, image_shape=image_shape)


def build(layers: int, *, num_classes: int, image_shape: tuple[int, int, int]) -> nn.HybridBlock:
    """Build the network of 6n+2 ``layers`` for images of (channels, height, width), weights as in He et al. (2015b)."""
    blocks = (layers - 2) // 6
    stem = sequence(convolution(image_shape[0], WIDTHS[0]), _batch_norm(WIDTHS[0]), nn.Activation("relu"))
    stages = [_stage(*channels, blocks) for channels in pairwise((WIDTHS[0], *WIDTHS))]
    last = nn.Dense(num_classes, in_units=WIDTHS[-1])
    network = sequence(stem, *stages, nn.GlobalAvgPool2D(), nn.Flatten(), last)
    # As torch's kaiming_normal_ with fan_out: variance 2 / outputs.
    network.initialize(init.Xavier(rnd_type="gaussian", factor_type="out", magnitude=2))
    return network


class BasicBlock(nn.HybridBlock):  # type: ignore[misc]  # MXNet has no types
    """Two convolutions, and the shortcut around them."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self._grows = out_channels > in_channels
        self.residual = sequence(
            convolution(in_channels, out_channels, stride=2 if self._grows else 1),
            _batch_norm(out_channels),
            nn.Activation("relu"),
            convolution(out_channels, out_channels),
            _batch_norm(out_channels),
        )

    def hybrid_forward(self, F: "ModuleType", images: "NDArray") -> "NDArray":  # noqa: N803 (MXNet's name)
        """Map (samples, in_channels, height, width) to (samples, out_channels, height / stride, width / stride)."""
        shortcut = images
        if self._grows:
            half = F.slice(images, begin=(None,) * 4, end=(None,) * 4, step=(None, None, 2, 2))
            # The channels double; MXNet's pad knows only height and width.
            shortcut = F.concat(half, F.zeros_like(half), dim=1)
        return F.relu(self.residual(images) + shortcut)


def _stage(in_channels: int, out_channels: int, blocks: int) -> nn.HybridSequential:
    """Build a stage of blocks; the first halves height and width when the number of channels grows."""
    return sequence(
        BasicBlock(in_channels, out_channels), *(BasicBlock(out_channels, out_channels) for _ in range(blocks - 1))
    )


def sequence(*layers: nn.HybridBlock) -> nn.HybridSequential:
    """Chain layers."""
    sequence = nn.HybridSequential()
    sequence.add(*layers)
    return sequence


def convolution(in_channels: int, out_channels: int, *, stride: int = 1, kernel: int = 3) -> nn.Conv2D:
    """Build a convolution without bias; its output has the height and width of its input over ``stride``."""
    padding = kernel // 2
    return nn.Conv2D(
        out_channels, kernel_size=kernel, strides=stride, padding=padding, use_bias=False, in_channels=in_channels
    )


def _batch_norm(channels: int) -> nn.BatchNorm:
    return nn.BatchNorm(in_channels=channels)
