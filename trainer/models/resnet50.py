"""Build ResNet-50: He et al. (2015), "Deep Residual Learning for Image Recognition", table 1.

The bottleneck's stride is in its 3x3 convolution, as in fb.resnet.torch ("v1.5"), and the last BatchNorm of each block
starts at zero, so that every block starts as the identity: Goyal et al. (2017), "Accurate, Large Minibatch SGD",
section 5.1. Convolutions start as in He et al. (2015b), "Delving Deep into Rectifiers".
25,557,032 parameters with 1,000 classes and three channels.
"""

from typing import Final

import torch
from torch import nn
from torch.nn.functional import relu

WIDTHS: Final = (64, 128, 256, 512)
BLOCKS: Final = (3, 4, 6, 3)
EXPANSION: Final = 4
"""Width of a block's output over the width of its 3x3 convolution."""


def build(*, num_classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    """Build ResNet-50 for images of (channels, height, width), at least 64x64."""
    first = nn.Sequential(
        nn.Conv2d(image_shape[0], 64, kernel_size=7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(kernel_size=3, stride=2, padding=1),
    )
    befores = (64, *(EXPANSION * width for width in WIDTHS))
    stages = [_stage(*sizes) for sizes in zip(befores, WIDTHS, BLOCKS, strict=False)]
    head = nn.Linear(EXPANSION * WIDTHS[-1], num_classes)
    nn.init.normal_(head.weight, std=0.01)
    nn.init.zeros_(head.bias)
    return nn.Sequential(first, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)


class Bottleneck(nn.Module):
    """Convolutions of 1x1 to ``width``, 3x3, and 1x1 to four times the width, with a shortcut around them."""

    def __init__(self, before: int, width: int, *, stride: int) -> None:
        super().__init__()
        after = EXPANSION * width
        last = nn.BatchNorm2d(after)
        nn.init.zeros_(last.weight)
        self.residual = nn.Sequential(
            _convolution(before, width, kernel=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            _convolution(width, width, kernel=3, stride=stride),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            _convolution(width, after, kernel=1),
            last,
        )
        self.shortcut: nn.Module = nn.Identity()
        if before != after:
            self.shortcut = nn.Sequential(_convolution(before, after, kernel=1, stride=stride), nn.BatchNorm2d(after))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Map (samples, before, height, width) to (samples, 4 width, height / stride, width / stride)."""
        return relu(self.residual(images) + self.shortcut(images))


def _stage(before: int, width: int, blocks: int) -> nn.Sequential:
    """Build a stage of blocks with one width; the first block halves the sides, except after the pooling."""
    first = Bottleneck(before, width, stride=1 if before == WIDTHS[0] else 2)
    return nn.Sequential(first, *(Bottleneck(EXPANSION * width, width, stride=1) for _ in range(blocks - 1)))


def _convolution(before: int, width: int, *, kernel: int, stride: int = 1) -> nn.Conv2d:
    convolution = nn.Conv2d(before, width, kernel_size=kernel, stride=stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return convolution
