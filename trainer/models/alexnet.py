"""Build AlexNet: Krizhevsky (2014), "One weird trick for parallelizing convolutional neural networks".

The form without groups and normalization of MXNet's model zoo (gluon.model_zoo.vision.alexnet) and torchvision. Biases
start at zero, convolutions as in He et al. (2015), "Delving Deep into Rectifiers".
61,100,840 parameters with 1,000 classes and 224x224 images of three channels.
"""

from torch import nn

WIDTH = 4096
"""Width of the two hidden linear layers."""


def build(*, num_classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    """Build AlexNet for images of (channels, height, width), at least 63x63."""
    channels, height, width = image_shape
    layers = (
        nn.Conv2d(channels, 64, kernel_size=11, stride=4, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(kernel_size=3, stride=2),
        nn.Conv2d(64, 192, kernel_size=5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(kernel_size=3, stride=2),
        nn.Conv2d(192, 384, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(384, 256, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(256, 256, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(kernel_size=3, stride=2),
        nn.Flatten(),
    )
    inputs = 256 * _reduced_side(height) * _reduced_side(width)
    return nn.Sequential(*layers, *classifier(inputs, num_classes=num_classes)).apply(start)


def classifier(inputs: int, *, num_classes: int) -> tuple[nn.Module, ...]:
    """Return the linear layers with dropout that AlexNet and VGG end with."""
    return (
        nn.Linear(inputs, WIDTH),
        nn.ReLU(),
        nn.Dropout(),
        nn.Linear(WIDTH, WIDTH),
        nn.ReLU(),
        nn.Dropout(),
        nn.Linear(WIDTH, num_classes),
    )


def start(layer: nn.Module) -> None:
    """Draw the initial weights of a layer."""
    if isinstance(layer, nn.Conv2d | nn.Linear):
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        else:
            nn.init.normal_(layer.weight, std=0.01)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


def _reduced_side(side: int) -> int:
    """Return the pixels of a side after the first convolution and the three poolings."""
    left = (side + 2 * 2 - 11) // 4 + 1
    for _ in range(3):
        left = (left - 3) // 2 + 1
    return left
