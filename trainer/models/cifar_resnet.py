"""Build ResNet for CIFAR: He et al. (2015), "Deep Residual Learning for Image Recognition", section 4.2.

6n+2 layers with parameters: one convolution, three stages of n blocks with 16, 32 and 64 channels, one linear layer.
Shortcuts are the paper's option A, so that they have no parameters of their own: every second pixel, and zeros for the
channels that are new. With 10 classes and three channels ResNet-20 has 269,722 parameters, ResNet-110 1,727,962
(the paper: 0.27 M and 1.7 M).
"""

from itertools import pairwise
from typing import Final

import torch
from torch import nn
from torch.nn.functional import pad, relu

WIDTHS: Final = (16, 32, 64)


def resnet20(*, num_classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    """Build ResNet-20."""
    return build(20, num_classes=num_classes, image_shape=image_shape)


def resnet110(*, num_classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    """Build ResNet-110."""
    return build(110, num_classes=num_classes, image_shape=image_shape)


def build(layers: int, *, num_classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    """Build the network of 6n+2 ``layers`` for images of (channels, height, width), weights as in He et al. (2015b)."""
    blocks = (layers - 2) // 6
    stem = nn.Sequential(_convolution(image_shape[0], WIDTHS[0]), nn.BatchNorm2d(WIDTHS[0]), nn.ReLU())
    stages = [_stage(*channels, blocks) for channels in pairwise((WIDTHS[0], *WIDTHS))]
    model = nn.Sequential(stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTHS[-1], num_classes))
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


class BasicBlock(nn.Module):
    """Two convolutions, and the shortcut around them."""

    def __init__(self, in_channels: int, out_channels: int, *, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.new_channels = out_channels - in_channels
        self.residual = nn.Sequential(
            _convolution(in_channels, out_channels, stride=stride),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
            _convolution(out_channels, out_channels),
            nn.BatchNorm2d(out_channels),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Map (samples, in_channels, height, width) to (samples, out_channels, height / stride, width / stride)."""
        shortcut = images
        if self.new_channels:
            shortcut = pad(images[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.new_channels))
        return relu(self.residual(images) + shortcut)


def _stage(in_channels: int, out_channels: int, blocks: int) -> nn.Sequential:
    """Build a stage of blocks; the first halves height and width when the number of channels grows."""
    first = BasicBlock(in_channels, out_channels, stride=1 if in_channels == out_channels else 2)
    return nn.Sequential(first, *(BasicBlock(out_channels, out_channels, stride=1) for _ in range(blocks - 1)))


def _convolution(in_channels: int, out_channels: int, *, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(in_channels, out_channels, kernel_size=3, stride=stride, padding=1, bias=False)
