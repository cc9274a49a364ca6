"""MXNet's networks as far as they can be looked at without MXNet; the rest is in tests/engines."""

import pytest

from trainer.errors import UsageError
from trainer.models import NETWORKS, gluon


@pytest.mark.parametrize("network", ["resnet50", "my_module:build"])
def test_fails_when_mxnet_does_not_have_the_network(network: str) -> None:
    with pytest.raises(UsageError) as error:
        gluon.build(network, classes=10, image_shape=(3, 32, 32))
    assert str(error.value) == (
        f"network {network} is not there for MXNet, which has: lenet, resnet20, resnet110, resnext110; "
        "--engine torch has it"
    )


def test_every_network_of_mxnets_is_one_of_torchs_too() -> None:
    assert set(gluon.NETWORKS) < set(NETWORKS)
