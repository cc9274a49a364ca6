"""MXNet's networks as far as they can be looked at without MXNet; the rest is in tests/engines."""

import pytest

from trainer.errors import UsageError
from trainer.models import NETWORKS
from trainer.mxnet import models


def test_fails_when_mxnet_does_not_have_the_network() -> None:
    with pytest.raises(UsageError) as error:
        models.build("resnet50", classes=10, image_shape=(3, 32, 32))
    assert str(error.value) == (
        "--network resnet50 is not there for MXNet, which has: lenet, resnet20, resnet110, resnext110, "
        "or your own as module:function; --engine torch has it"
    )


def test_every_network_of_mxnets_is_one_of_torchs_too() -> None:
    assert set(models.NETWORKS) < set(NETWORKS)
