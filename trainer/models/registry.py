"""List the networks of ``--network``, and build them or a user's own: ``--network module:function``.

These are PyTorch's; mxnet_backend/models/__init__.py lists MXNet's.
"""

import contextlib
import copy
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trainer.errors import UsageError

if TYPE_CHECKING:
    from torch import nn

ImageShape = tuple[int, int, int]
"""Channels, height and width."""
REFERENCE: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """Properties of a network that are known before torch is loaded."""

    reference: str
    """Function that builds it, as module:function."""
    image_shape: ImageShape
    """Shape of the images for which it was made; it also accepts others."""
    num_classes: int = 10
    """Number of classes of the dataset for which it was made."""
    min_image_size: int
    """Smallest height and width that leave its last layer an input."""


NETWORKS: Final[Mapping[str, Network]] = {
    "lenet": Network(reference="trainer.models.lenet:build", image_shape=(1, 28, 28), min_image_size=16),
    "resnet20": Network(reference="trainer.models.cifar_resnet:resnet20", image_shape=(3, 32, 32), min_image_size=8),
    "resnet110": Network(reference="trainer.models.cifar_resnet:resnet110", image_shape=(3, 32, 32), min_image_size=8),
    "resnext110": Network(reference="trainer.models.resnext110:build", image_shape=(3, 32, 32), min_image_size=8),
    "resnet50": Network(
        reference="trainer.models.resnet50:build", image_shape=(3, 224, 224), num_classes=1000, min_image_size=64
    ),
    "alexnet": Network(
        reference="trainer.models.alexnet:build", image_shape=(3, 224, 224), num_classes=1000, min_image_size=63
    ),
    "vgg16": Network(
        reference="trainer.models.vgg16:build", image_shape=(3, 224, 224), num_classes=1000, min_image_size=32
    ),
}


def check_network(name: str) -> None:
    """Raise UsageError unless this is a built-in network, or has the form module:function."""
    if name not in NETWORKS and not REFERENCE.fullmatch(name):
        raise UsageError(
            f"unknown --network {name!r}, must be one of: {', '.join(NETWORKS)}; or your own, as module:function"
        )


def build(network: str, *, num_classes: int, image_shape: ImageShape) -> "nn.Module":
    """Build a network with new weights from torch's random numbers.

    The network's function gets those of the keywords ``num_classes`` (also as ``classes``), ``image_shape`` (channels,
    height, width) and ``in_chans`` (timm's name of the channels) that it takes. Raises UsageError when there is no such
    function, or it returns no nn.Module with parameters to train.
    """
    # Imported late: a wrong option is reported without loading torch.
    from torch import nn

    reference = NETWORKS[network].reference if network in NETWORKS else network
    model = call(reference, num_classes=num_classes, image_shape=image_shape)
    if not isinstance(model, nn.Module):
        raise UsageError(f"--network {network} must return a torch.nn.Module, got {type(model).__name__}")
    parameters = list(model.parameters())
    if any(isinstance(parameter, nn.UninitializedParameter) for parameter in parameters):
        raise UsageError(f"--network {network} must not have lazy modules such as nn.LazyLinear")
    if not any(parameter.requires_grad for parameter in parameters):
        raise UsageError(f"--network {network} must have parameters to train, it has none")
    if others := sorted({str(parameter.dtype) for parameter in parameters} - {"torch.float32"}):
        raise UsageError(
            f"--network {network}: weights must be torch.float32, got {others[0]}; --dtype sets the compute type"
        )
    if network not in NETWORKS:
        check_logits(_logits_of_one(model, image_shape), network=network, num_classes=num_classes)
    return model


def _logits_of_one(model: "nn.Module", image_shape: ImageShape) -> object:
    """Return what the network returns for one image; None when it fails, which the first step will report."""
    import torch

    # Use a copy, because the network may count its calls.
    with torch.no_grad(), torch.random.fork_rng(devices=[]), contextlib.suppress(Exception):
        return copy.deepcopy(model).eval()(torch.zeros(1, *image_shape))
    return None


def check_logits(logits: object, *, network: str, num_classes: int) -> None:
    """Raise UsageError unless a network may return these logits for one image; None means unknown."""
    shape = getattr(logits, "shape", None)
    if logits is not None and shape != (1, num_classes):
        got = type(logits).__name__ if shape is None else f"shape {tuple(shape)}"
        raise UsageError(
            f"--network {network} must return a score for each class, shape (images, {num_classes}), "
            f"got {got} for one image"
        )


def call(reference: str, *, num_classes: int, image_shape: ImageShape) -> object:
    """Call module:function with the keywords that it takes, and return the network that it builds.

    Raises UsageError when there is no such function, or it needs other arguments.
    """
    function = _find(reference)
    parameters = inspect.signature(function).parameters
    offered = {
        "num_classes": num_classes,
        "classes": num_classes,
        "image_shape": image_shape,
        "in_chans": image_shape[0],
    }
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty and parameter.kind not in variable
    ]
    if unsupported := [name for name in required if name not in offered]:
        raise UsageError(
            f"--network {reference} takes {' and '.join(unsupported)}, a network gets only {', '.join(offered)}: "
            "give the others defaults"
        )
    passed_through = _kwargs_keywords(parameters)
    return function(**{name: value for name, value in offered.items() if name in passed_through or name in parameters})


def _kwargs_keywords(parameters: Mapping[str, inspect.Parameter]) -> tuple[str, ...]:
    """Return the keywords that a function accepts without naming them, as it passes **kwargs to the network's class."""
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return ()
    if {"weights", "progress"} & parameters.keys():
        return ("num_classes",)  # like torchvision's
    if "pretrained" in parameters:
        return ("num_classes", "in_chans")  # like timm's
    return ("classes", "image_shape")


def _find(reference: str) -> Callable[..., object]:
    """Import the function module:function; the module may be in the working directory."""
    name, _, attribute = reference.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        # A missing module that the user's network imports keeps its traceback.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise UsageError(
            f"--network {reference}: no module {error.name!r} in {Path.cwd()} or on Python's path"
        ) from error
    function = getattr(module, attribute, None)
    if not callable(function):
        problem = "is missing" if function is None else f"is {type(function).__name__}"
        raise UsageError(f"--network {reference}: {attribute} must be a function in {module.__file__}, it {problem}")
    return function  # type: ignore[no-any-return]  # a module may hold anything
