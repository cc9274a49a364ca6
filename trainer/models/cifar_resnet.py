"""Build ResNet for CIFAR: He et al. (2015), "Deep Residual Learning for Image Recognition", section 4.2.

6n+2 layers with weights: one convolution, three stages of n blocks with 16, 32 and 64 channels, one linear layer.
Shortcuts are the paper's option A, so that they have no weights of their own: every second pixel, and zeros for the
channels that are new. With 10 classes and three channels ResNet-20 has 269,722 weights, ResNet-110 1,727,962
(the paper: 0.27 M and 1.7 M).
"""

from typing import Final

import torch
from torch import nn
from torch.nn.functional import pad, relu

WIDTHS: Final = (16, 32, 64)


def resnet20(*, classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    """Build ResNet-20."""
    return build(20, classes=classes, image_shape=image_shape)


def resnet110(*, classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    """Build ResNet-110."""
    return build(110, classes=classes, image_shape=image_shape)


def build(layers: int, *, classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    """Build the network of 6n+2 ``layers`` for images of (channels, height, width), weights as in He et al. (2015b)."""
    blocks = (layers - 2) // 6
    first = nn.Sequential(_convolution(image_shape[0], WIDTHS[0]), nn.BatchNorm2d(WIDTHS[0]), nn.ReLU())
    stages = [_stage(before, width, blocks) for before, width in zip((WIDTHS[0], *WIDTHS), WIDTHS, strict=False)]
    model = nn.Sequential(first, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTHS[-1], classes))
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


class Block(nn.Module):
    """Two convolutions, and the shortcut around them."""

    def __init__(self, before: int, width: int, *, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.new_channels = width - before
        self.residual = nn.Sequential(
            _convolution(before, width, stride=stride),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            _convolution(width, width),
            nn.BatchNorm2d(width),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Map (samples, before, height, width) to (samples, width, height / stride, width / stride)."""
        shortcut = images
        if self.new_channels:
            shortcut = pad(images[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.new_channels))
        return relu(self.residual(images) + shortcut)


def _stage(before: int, width: int, blocks: int) -> nn.Sequential:
    """Build a stage of blocks with one width; the first halves the sides when the width grows."""
    first = Block(before, width, stride=1 if before == width else 2)
    return nn.Sequential(first, *(Block(width, width, stride=1) for _ in range(blocks - 1)))


def _convolution(before: int, width: int, *, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, width, kernel_size=3, stride=stride, padding=1, bias=False)
