"""Build the ResNeXt-110 of "Training MXNet, part 4: distributed training" with PyTorch.

It is what MXNet's example builds for ``--network resnext --num-layers 110``.
Source: apache/mxnet, example/image-classification/symbols/resnext.py. By its name it is the ResNeXt of Xie et al.
(2017), "Aggregated Residual Transformations for Deep Neural Networks"; but below 164 layers MXNet takes the basic
block, where its ``num_group`` has no effect. So there are no groups in it: it is the CIFAR ResNet-110 of He et al. with
three differences. A BatchNorm without a scale stands before the first convolution and none after it; the first
block of every stage, the first stage included, has a shortcut of a 1x1 convolution and a BatchNorm (the paper's
option B); epsilon is 2e-5. With 10 classes and three channels: 1,730,973 weights.
"""

from typing import Final

import torch
from torch import nn
from torch.nn.functional import relu

WIDTHS: Final = (16, 32, 64)
BLOCKS: Final = 18
"""Blocks in a stage: (110 - 2) / 6."""
EPSILON: Final = 2e-5


def build(*, classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    """Build the network for images of (channels, height, width)."""
    before = nn.BatchNorm2d(image_shape[0], eps=EPSILON)
    before.weight.requires_grad = False  # MXNet's fix_gamma
    first = nn.Sequential(before, nn.Conv2d(image_shape[0], WIDTHS[0], kernel_size=3, padding=1, bias=False))
    stages = (_stage(WIDTHS[0], 16, stride=1), _stage(16, 32, stride=2), _stage(32, 64, stride=2))
    model = nn.Sequential(first, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTHS[-1], classes))
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            # MXNet's example: Xavier(rnd_type="gaussian", factor_type="in", magnitude=2).
            nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return model


class Block(nn.Module):
    """Two convolutions and a shortcut around them, which has weights in the first block of a stage."""

    def __init__(self, before: int, width: int, *, stride: int, first: bool) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(before, width, kernel_size=3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(width, eps=EPSILON),
            nn.ReLU(),
            nn.Conv2d(width, width, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(width, eps=EPSILON),
        )
        self.shortcut: nn.Module = nn.Identity()
        if first:
            projection = nn.Conv2d(before, width, kernel_size=1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(width, eps=EPSILON))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Map (samples, before, height, width) to (samples, width, height / stride, width / stride)."""
        return relu(self.residual(images) + self.shortcut(images))


def _stage(before: int, width: int, *, stride: int) -> nn.Sequential:
    rest = (Block(width, width, stride=1, first=False) for _ in range(BLOCKS - 1))
    return nn.Sequential(Block(before, width, stride=stride, first=True), *rest)
