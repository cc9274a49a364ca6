"""The networks for MXNet, by their names in ``--network``, and those of the user: ``--network module:function``.

The weights of ours have the names, shapes and order of those that torch has, so that a checkpoint written
by one engine can be read by another. All sizes are given: the weights are there before the first batch.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from trainer import models
from trainer.errors import UsageError

if TYPE_CHECKING:
    from mxnet.gluon import HybridBlock, Parameter

NETWORKS: Final[Mapping[str, str]] = {
    "lenet": "trainer.models.gluon.lenet:build",
    "resnet20": "trainer.models.gluon.cifar_resnet:resnet20",
    "resnet110": "trainer.models.gluon.cifar_resnet:resnet110",
    "resnext110": "trainer.models.gluon.resnext110:build",
}
"""Where each is built."""


def build(network: str, *, classes: int, image_shape: tuple[int, int, int]) -> "HybridBlock":
    """Build a network for images of (channels, height, width), with new weights from MXNet's random numbers.

    Raises UsageError where there is none for MXNet, or where what is built is not ready to be trained.
    """
    if network in models.NETWORKS and network not in NETWORKS:
        raise UsageError(
            f"--network {network} is not there for MXNet, which has: {', '.join(NETWORKS)}, "
            "or your own as module:function; --engine torch has it"
        )
    # Imported late: it is in an environment of its own.
    from mxnet.gluon import HybridBlock

    model = models.call(NETWORKS.get(network, network), classes=classes, image_shape=image_shape)
    if not isinstance(model, HybridBlock):
        raise UsageError(f"--network {network} must return a gluon.HybridBlock, got {type(model).__name__}")
    parameters = list(model.collect_params().values())
    if missing := [parameter.name for parameter in parameters if not _has_values(parameter)]:
        raise UsageError(
            f"--network {network} must be initialized and know its sizes (in_units, in_channels) when it is built, "
            f"{missing[0]} has no values"
        )
    if all(parameter.grad_req == "null" for parameter in parameters):
        raise UsageError(f"--network {network} must have weights to train, it has none")
    if network not in NETWORKS:
        models.check_scores(_scores_of_one(model, image_shape), network=network, classes=classes)
    return model


def _scores_of_one(model: "HybridBlock", image_shape: tuple[int, int, int]) -> object:
    """What the network returns for one image; None where it fails, which its first step will say with a traceback."""
    from mxnet import nd

    try:
        scores = model(nd.zeros((1, *image_shape)))
        # MXNet computes beside us, and says only here what fails.
        nd.waitall()
    except Exception:
        return None
    return scores


def _has_values(parameter: "Parameter") -> bool:
    try:
        parameter.data()
    except RuntimeError:
        # MXNet's errors are of this kind; one is of parameters whose sizes the first batch would tell.
        return False
    return True
