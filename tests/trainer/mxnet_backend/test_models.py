"""Test the parts of MXNet's networks that need no MXNet; the rest is in tests/frameworks."""

import pytest

from trainer.errors import UsageError
from trainer.models import NETWORKS
from trainer.mxnet_backend import models


def test_network_without_mxnet_version_is_reported() -> None:
    with pytest.raises(UsageError) as error:
        models.build("resnet50", num_classes=10, image_shape=(3, 32, 32))
    assert str(error.value) == (
        "--network resnet50 is not available for MXNet, which has: lenet, resnet20, resnet110, resnext110, "
        "or your own as module:function; use --framework torch"
    )


def test_every_mxnet_network_exists_for_torch() -> None:
    assert set(models.NETWORKS) < set(NETWORKS)
