"""Compare n workers with one, our networks with the literature's, MXNet's momentum with torch's."""

import pytest

from tests.frameworks.mxnet_cluster import NODES, MxnetCluster
from tests.frameworks.training import ONE_WORKER, PYTHON, TWO_SERVERS, train

TOLERANCE = 1e-5
# 2,000 synthetic images: the last of 19 steps has 2, and the first of three ranks gets none. The rate is low because
# max-pooling picks one of two nearly equal values: with larger steps, rounding alone may separate two correct runs.
EQUAL = "--benchmark 1 --num-epochs 2 --lr 0.001"


@pytest.fixture(scope="module")
def one_worker(cluster: MxnetCluster) -> str:
    """Train one worker with the batches of three; return the checkpoint."""
    train(cluster, ONE_WORKER, f"--framework mxnet {EQUAL} --batch-size 111 --model-prefix one")
    return "one-0002.npz"


@pytest.mark.parametrize(
    ("launch", "framework"),
    [(f"--framework mxnet -s {NODES}", "mxnet --kv-store dist_sync"), ("--framework horovod", "horovod")],
)
def test_three_workers_learn_what_one_with_their_batches_learns(
    cluster: MxnetCluster, one_worker: str, launch: str, framework: str
) -> None:
    name = framework.split()[0]
    training = train(cluster, launch, f"--framework {framework} {EQUAL} --batch-size 37 --model-prefix three-{name}")
    training.assert_equal_weights(ranks=NODES, epochs=2)
    compare = f"""
import numpy
one, three = numpy.load("{one_worker}"), numpy.load("three-{name}-0002.npz")
names = [name for name in one.files if name.startswith("weight/")]
assert names == [name for name in three.files if name.startswith("weight/")]
one, three = (numpy.concatenate([each[name].ravel() for name in names]) for each in (one, three))
print(len(one), numpy.linalg.norm(one - three) / numpy.linalg.norm(one))
"""
    weights, distance = cluster.on_master(f"cd trainer; {PYTHON} - <<'PY'\n{compare}\nPY").split()
    assert weights == "431080"
    # Measured: see docs/trainer.md.
    assert float(distance) < TOLERANCE


def test_batch_norm_statistics_are_equal_on_all_ranks_and_backends(cluster: MxnetCluster) -> None:
    # The last step of 100 synthetic images has four.
    options = "--network resnet20 --benchmark 1 --num-examples 100 --num-epochs 1 --batch-size 16 --lr 0.001"
    options += " --last-batch keep"
    servers = train(cluster, TWO_SERVERS, f"--framework mxnet --kv-store dist_sync {options} --model-prefix bn-mxnet")
    servers.assert_equal_weights(ranks=2, epochs=1)
    # The order of two summands does not change the bits; the digest includes the statistics.
    horovod = train(cluster, "--framework horovod -n 2", f"--framework horovod {options} --model-prefix bn-horovod")
    assert horovod.digests == servers.digests, horovod.output


NETWORKS = """
import numpy
from trainer.mxnet_backend.gluon_backend import named_parameters
from trainer.mxnet_backend.models import build
from mxnet import nd
for network in "lenet", "resnet20", "resnet110", "resnext110":
    shape = (1, 28, 28) if network == "lenet" else (3, 32, 32)
    model = build(network, num_classes=10, image_shape=shape)
    trained = [each for each in named_parameters(model).values() if each.grad_req != "null"]
    scores = model(nd.zeros((2, *shape))).asnumpy()
    assert scores.shape == (2, 10) and numpy.isfinite(scores).all()
    print(network, sum(each.data().size for each in trained))
"""


def test_networks_have_the_sizes_known_from_the_literature(cluster: MxnetCluster) -> None:
    output = cluster.on_master(f"export PYTHONPATH=/opt/deeplearning; {PYTHON} - <<'PY'\n{NETWORKS}\nPY")
    assert output.splitlines() == ["lenet 431080", "resnet20 269722", "resnet110 1727962", "resnext110 1730973"]


RATES = """
import numpy
from trainer.config.settings import TrainConfig
from trainer.data.batches import load_and_transform
from trainer.data.open_dataset import open_data
from trainer.mxnet_backend.create_backend import init
from trainer.distributed.data_parallel import DataParallelGroup
config = TrainConfig(framework="mxnet", weight_decay=0, num_classes=10)
data = open_data(config)
framework = init(config, {})
backend = framework.create_backend(config, world=framework.world, dp=DataParallelGroup(), learning_rate=0.1)
def step(samples):
    before = backend.weights()["9.weight"]
    backend.forward_backward(*load_and_transform(data, data.train, numpy.arange(samples)))
    backend.optimizer_step(num_samples=8)
    return backend.weights()["9.weight"] - before
first = step(8)
backend.set_learning_rate(0.05)
print(numpy.allclose(step(0), 0.5 * 0.9 * first, rtol=1e-3, atol=1e-7))
"""


def test_new_learning_rate_holds_for_the_momentum_too_as_with_torch(cluster: MxnetCluster) -> None:
    assert cluster.on_master(f"export PYTHONPATH=/opt/deeplearning; {PYTHON} - <<'PY'\n{RATES}\nPY") == "True"


GOING_ON = """
import numpy
from trainer.config.settings import TrainConfig
from trainer.data.batches import load_and_transform
from trainer.data.open_dataset import open_data
from trainer.backend import TrainingState
from trainer.mxnet_backend.create_backend import init
from trainer.distributed.data_parallel import DataParallelGroup
config = TrainConfig(framework="mxnet", num_classes=10)
data = open_data(config)
def create():
    framework = init(config, {})
    return framework.create_backend(config, world=framework.world, dp=DataParallelGroup(), learning_rate=0.1)
batch = load_and_transform(data, data.train, numpy.arange(8))
rates = [0.1 * (step + 1) / 7 for step in range(6)]
def train(backend, rates):
    for rate in rates:
        backend.forward_backward(*batch)
        backend.set_learning_rate(rate)
        backend.optimizer_step(num_samples=8)
    return backend.state()
whole = create()
whole.restore(None, source=0)
half = train(whole, rates[:3])
kept = TrainingState(weights=half.weights, optimizer={**half.optimizer})
undisturbed = train(whole, rates[3:])
whole.close()
again = create()
again.restore(kept, source=0)
assert float(again.state().optimizer["mxnet_rate"]) == rates[2]
resumed = train(again, rates[3:])
both = zip([*undisturbed.weights.values(), *undisturbed.optimizer.values()],
           [*resumed.weights.values(), *resumed.optimizer.values()])
print(all(one.tobytes() == other.tobytes() for one, other in both))
"""


def test_resume_during_warmup_gives_the_same_bits(cluster: MxnetCluster) -> None:
    assert cluster.on_master(f"export PYTHONPATH=/opt/deeplearning; {PYTHON} - <<'PY'\n{GOING_ON}\nPY") == "True"
