"""Test that a user's own network trains with MXNet: ``--network module:function``."""

import pytest

from tests.frameworks.mxnet_cluster import MxnetCluster
from tests.frameworks.training import PYTHON, TRAINER, TWO_SERVERS, Training

FOLDER = "/home/ubuntu/own"
NETWORKS = """
from mxnet.gluon import nn

def build(num_classes, image_shape):
    channels, height, width = image_shape
    network = nn.HybridSequential()
    network.add(nn.Flatten(), nn.Dense(100, in_units=channels * height * width, activation="relu"))
    network.add(nn.Dense(num_classes, in_units=100))
    network.initialize()
    return network

def lazy(num_classes):
    network = nn.HybridSequential()
    network.add(nn.Dense(num_classes))
    network.initialize()
    return network

def new(num_classes, image_shape):
    return nn.Dense(num_classes, in_units=4)

def few(image_shape):
    channels, height, width = image_shape
    network = nn.HybridSequential()
    network.add(nn.Flatten(), nn.Dense(3, in_units=channels * height * width))
    network.initialize()
    return network

def weightless():
    return nn.Flatten()

def nothing():
    return None
"""


@pytest.fixture(scope="module", autouse=True)
def own_networks(cluster: MxnetCluster) -> None:
    cluster.on_master(f"mkdir {FOLDER}; cat > {FOLDER}/mynet.py <<'PY'\n{NETWORKS}\nPY")


@pytest.mark.parametrize(
    ("launch", "framework"), [(TWO_SERVERS, "mxnet --kv-store dist_sync"), ("-n 2 --framework horovod", "horovod")]
)
def test_ones_own_network_is_trained_on_all_nodes(cluster: MxnetCluster, launch: str, framework: str) -> None:
    options = "--network mynet:build --num-epochs 6 --resume never"
    training = Training(
        output=cluster.on_master(
            f"cd {FOLDER}; export OMP_NUM_THREADS=1;"
            f" launch {launch} --sync-dst-dir {FOLDER} python {TRAINER} --framework {framework} {options}"
        )
    )
    training.assert_equal_weights(ranks=2, epochs=6)
    assert training.accuracy >= 0.9, training.output


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        (
            "resnet50",
            "--network resnet50 is not available for MXNet, which has: lenet, resnet20, resnet110, resnext110, "
            "or your own as module:function; use --framework torch",
        ),
        ("mynet:nothing", "--network mynet:nothing must return a gluon.HybridBlock, got NoneType"),
        ("mynet:missing", f"--network mynet:missing: missing must be a function in {FOLDER}/mynet.py, it is missing"),
        ("mynet:lazy", "--network mynet:lazy must be initialized and know its sizes (in_units, in_channels)"),
        ("mynet:new", "--network mynet:new must be initialized and know its sizes (in_units, in_channels)"),
        (
            "mynet:few",
            "--network mynet:few must return a score for each class, shape (images, 10), got shape (1, 3) for",
        ),
        ("mynet:weightless", "--network mynet:weightless must have parameters to train, it has none"),
    ],
)
def test_network_that_mxnet_lacks_is_refused(cluster: MxnetCluster, network: str, reason: str) -> None:
    shape = "--benchmark 1 --image-shape 3,64,64"
    output = cluster.on_master(
        f"cd {FOLDER}; {PYTHON} {TRAINER} --framework mxnet {shape} --network {network}; echo code $?"
    )
    assert f"trainer: {reason}" in output
    assert "Traceback" not in output
    assert output.splitlines()[-1] == "code 2", output
