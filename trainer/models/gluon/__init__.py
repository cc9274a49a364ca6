"""The networks for MXNet, by their names in ``--network``.

Their weights have the names, shapes and order of those that torch has, so that a checkpoint written
by one engine can be read by another. All sizes are given: the weights are there before the first batch.
"""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from trainer.errors import UsageError

if TYPE_CHECKING:
    from mxnet.gluon import HybridBlock

NETWORKS: Final[Mapping[str, str]] = {
    "lenet": "trainer.models.gluon.lenet:build",
    "resnet20": "trainer.models.gluon.cifar_resnet:resnet20",
    "resnet110": "trainer.models.gluon.cifar_resnet:resnet110",
    "resnext110": "trainer.models.gluon.resnext110:build",
}
"""Where each is built."""


def build(network: str, *, classes: int, image_shape: tuple[int, int, int]) -> "HybridBlock":
    """Build a network for images of (channels, height, width), with new weights from MXNet's random numbers.

    Raises UsageError where there is none for MXNet.
    """
    if network not in NETWORKS:
        raise UsageError(
            f"network {network} is not there for MXNet, which has: {', '.join(NETWORKS)}; --engine torch has it"
        )
    module, _, function = NETWORKS[network].partition(":")
    return getattr(importlib.import_module(module), function)(classes=classes, image_shape=image_shape)
