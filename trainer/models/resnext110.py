"""Build the ResNeXt-110 of "Training MXNet, part 4: distributed training" with PyTorch.

It is not the ResNeXt of Xie et al. (2017), "Aggregated Residual Transformations for Deep Neural Networks", whose name
MXNet gives it: it has no groups. It is the CIFAR ResNet-110 of He et al. with three differences:

- A BatchNorm without a scale stands before the first convolution and none after it.
- The first block of every stage, the first stage included, has a shortcut of a 1x1 convolution and a BatchNorm (the
  paper's option B).
- Epsilon is 2e-5.

MXNet's example builds it for ``--network resnext --num-layers 110`` (apache/mxnet,
example/image-classification/symbols/resnext.py), because it takes the basic block below 164 layers, where its
``num_group`` has no effect. With 10 classes and three channels: 1,730,973 parameters.
"""

from typing import Final

import torch
from torch import nn
from torch.nn.functional import relu

WIDTHS: Final = (16, 32, 64)
BLOCKS: Final = 18
"""Blocks in a stage: (110 - 2) / 6."""
EPSILON: Final = 2e-5


def build(*, num_classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    """Build the network for images of (channels, height, width)."""
    input_norm = nn.BatchNorm2d(image_shape[0], eps=EPSILON)
    input_norm.weight.requires_grad = False  # MXNet's fix_gamma
    stem = nn.Sequential(input_norm, nn.Conv2d(image_shape[0], WIDTHS[0], kernel_size=3, padding=1, bias=False))
    stages = (_stage(WIDTHS[0], 16, stride=1), _stage(16, 32, stride=2), _stage(32, 64, stride=2))
    model = nn.Sequential(stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTHS[-1], num_classes))
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            # MXNet's example: Xavier(rnd_type="gaussian", factor_type="in", magnitude=2).
            nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return model


class Block(nn.Module):
    """Two convolutions and a shortcut around them, which has parameters in the first block of a stage."""

    def __init__(self, in_channels: int, out_channels: int, *, stride: int, first: bool) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, kernel_size=3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(out_channels, eps=EPSILON),
            nn.ReLU(),
            nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels, eps=EPSILON),
        )
        self.shortcut: nn.Module = nn.Identity()
        if first:
            projection = nn.Conv2d(in_channels, out_channels, kernel_size=1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(out_channels, eps=EPSILON))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Map (samples, in_channels, height, width) to (samples, out_channels, height / stride, width / stride)."""
        return relu(self.residual(images) + self.shortcut(images))


def _stage(in_channels: int, out_channels: int, *, stride: int) -> nn.Sequential:
    rest = (Block(out_channels, out_channels, stride=1, first=False) for _ in range(BLOCKS - 1))
    return nn.Sequential(Block(in_channels, out_channels, stride=stride, first=True), *rest)
