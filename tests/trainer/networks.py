"""Define users' networks, for ``--network module:function``."""

import torch
from torch import nn

from trainer.models import cifar_resnet


def batch_norm_network(*, num_classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    """Build a network with BatchNorm over many values per channel of a sample, and over one."""
    return nn.Sequential(
        nn.Conv2d(image_shape[0], 8, kernel_size=3, stride=2, bias=False),
        nn.BatchNorm2d(8),
        nn.Tanh(),
        nn.Conv2d(8, 16, kernel_size=3, stride=2, bias=False),
        nn.BatchNorm2d(16),
        nn.Tanh(),
        nn.AdaptiveAvgPool2d(1),
        nn.BatchNorm2d(16),
        nn.Flatten(),
        nn.Linear(16, num_classes),
    )


def resnet8(*, num_classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    """Build the smallest ResNet for CIFAR."""
    return cifar_resnet.build(8, num_classes=num_classes, image_shape=image_shape)


def perceptron(*, num_classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    """Build a network that is fast in any data type."""
    channels, height, width = image_shape
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, 32), nn.Tanh(), nn.Linear(32, num_classes))


def normalized_perceptron(*, num_classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    """Build a network with BatchNorm that is fast in any data type."""
    channels, height, width = image_shape
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(channels * height * width, 32),
        nn.BatchNorm1d(32),
        nn.Tanh(),
        nn.Linear(32, num_classes),
    )


class Viewing(nn.Module):
    """Uses view(), which fails with channels_last."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 4, kernel_size=3)
        self.linear = nn.Linear(4 * 26 * 26, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.linear(self.convolution(images).view(len(images), -1))
        return scores


def lazy(num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(num_classes))


def wrong_class_count(image_shape: tuple[int, int, int]) -> nn.Module:
    return perceptron(num_classes=3, image_shape=image_shape)


class Pair(nn.Module):
    """Returns two tensors."""

    def __init__(self, *, num_classes: int, image_shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.scores = perceptron(num_classes=num_classes, image_shape=image_shape)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.scores(images), images


class Counting(nn.Module):
    """Counts its calls, and draws random numbers."""

    def __init__(self, *, num_classes: int, image_shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.scores = perceptron(num_classes=num_classes, image_shape=image_shape)
        self.calls = 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        scores: torch.Tensor = self.scores(images)
        return scores + torch.rand_like(scores)


def float64_weights(*, num_classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    return perceptron(num_classes=num_classes, image_shape=image_shape).double()


def weightless() -> nn.Module:
    return nn.Flatten()


def nothing(**_: object) -> None:
    pass


not_a_function = 3


def extra_arguments(
    num_classes: int, width: int, *layers: int, dropout: float, depth: int = 3, **_: object
) -> nn.Module:
    raise NotImplementedError


def dropout_and_batch_norm(*, num_classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    """Build a network with BatchNorm, which remembers earlier steps, and dropout, which draws random numbers."""
    return nn.Sequential(
        nn.Conv2d(image_shape[0], 16, kernel_size=3, stride=2, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Dropout2d(0.1),
        nn.Flatten(),
        nn.Linear(16 * ((image_shape[1] - 1) // 2) * ((image_shape[2] - 1) // 2), 64),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(64, num_classes),
    )


class Classifier(nn.Module):
    """A library's network, whose class accepts only these arguments."""

    def __init__(self, num_classes: int = 1000, in_chans: int = 3) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(in_chans, 4, kernel_size=3)
        self.scores = nn.Linear(4, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.scores(self.convolution(images).mean((2, 3)))
        return scores


def as_in_torchvision(*, weights: str | None = None, progress: bool = True, **kwargs: int) -> nn.Module:
    """Build a network like torchvision.models.resnet18, whose class has no in_chans."""
    assert weights is None
    assert progress
    assert set(kwargs) <= {"num_classes"}
    return Classifier(**kwargs)


def as_in_timm(pretrained: bool = False, **kwargs: int) -> nn.Module:
    """Build a network like timm.models.resnet18."""
    assert not pretrained
    return Classifier(**kwargs)


class Skipping(nn.Module):
    """Never uses one of its layers."""

    def __init__(self, *, num_classes: int, image_shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.scores = perceptron(num_classes=num_classes, image_shape=image_shape)
        self.skipped = nn.Linear(1, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.scores(images)
        return scores
