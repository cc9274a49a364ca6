"""List the networks for MXNet, and build them or a user's own: ``--network module:function``.

Weights of the built-in networks have the same names, shapes and order as in torch, so that either backend can read the
other's checkpoints. All sizes are given, so that the weights exist before the first batch.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from trainer import models
from trainer.errors import UsageError

if TYPE_CHECKING:
    from mxnet.gluon import HybridBlock, Parameter

NETWORKS: Final[Mapping[str, str]] = {
    "lenet": "trainer.mxnet_backend.models.lenet:build",
    "resnet20": "trainer.mxnet_backend.models.cifar_resnet:resnet20",
    "resnet110": "trainer.mxnet_backend.models.cifar_resnet:resnet110",
    "resnext110": "trainer.mxnet_backend.models.resnext110:build",
}
"""Function that builds each, as module:function."""


def build(network: str, *, num_classes: int, image_shape: tuple[int, int, int]) -> "HybridBlock":
    """Build a network for images of (channels, height, width), with new weights from MXNet's random numbers.

    Raises UsageError when MXNet does not have the network, or when it is not ready to be trained.
    """
    if network in models.NETWORKS and network not in NETWORKS:
        raise UsageError(
            f"--network {network} is not available for MXNet, which has: {', '.join(NETWORKS)}, "
            "or your own as module:function; use --framework torch"
        )
    # Imported here: only MXNet's own environment has it.
    from mxnet.gluon import HybridBlock

    model = models.call(NETWORKS.get(network, network), num_classes=num_classes, image_shape=image_shape)
    if not isinstance(model, HybridBlock):
        raise UsageError(f"--network {network} must return a gluon.HybridBlock, got {type(model).__name__}")
    parameters = list(model.collect_params().values())
    if missing := [parameter.name for parameter in parameters if not _has_values(parameter)]:
        raise UsageError(
            f"--network {network} must be initialized and know its sizes (in_units, in_channels) when it is built, "
            f"{missing[0]} has no values"
        )
    if all(parameter.grad_req == "null" for parameter in parameters):
        raise UsageError(f"--network {network} must have parameters to train, it has none")
    if network not in NETWORKS:
        models.check_logits(_logits_of_one(model, image_shape), network=network, num_classes=num_classes)
    return model


def _logits_of_one(model: "HybridBlock", image_shape: tuple[int, int, int]) -> object:
    """Return what the network returns for one image; None when it fails, which the first step will report."""
    from mxnet import nd

    try:
        logits = model(nd.zeros((1, *image_shape)))
        # MXNet computes in its own threads, and raises their errors only here.
        nd.waitall()
    except Exception:
        return None
    return logits


def _has_values(parameter: "Parameter") -> bool:
    try:
        parameter.data()
    except RuntimeError:
        # MXNet raises it for parameters whose sizes are unknown before the first batch.
        return False
    return True
