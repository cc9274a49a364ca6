"""The trainer's engines on real nodes: that they learn, what equals what, and what a lost rank costs."""

import json
import re
import time
from dataclasses import dataclass

import pytest

from tests.engines.conftest import MASTER, NODES, WORKERS, Cluster

TRAINER = "/opt/deeplearning/trainer"
PYTHON = "/opt/deeplearning/engines/current/bin/python"
PYTORCH = "/opt/pytorch/bin/python"
KNOWN = 0.98
TOLERANCE = 1e-5
DEADLINE_S = 120
SHORT = "--num-epochs 6"
TWO_SERVERS = "--engine mxnet -n 2 -s 2"
ALONE = f"-n 1 {PYTHON}"
"""One worker needs no servers, and so no processes of MXNet's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """One that has ended."""

    output: str

    @property
    def accuracy(self) -> float:
        """Of the held-out digits, as rank 0 says it once."""
        [said] = re.findall(r"rank 0/\d Validation-accuracy=(\S+)", self.output)
        return float(said)

    @property
    def digests(self) -> dict[int, dict[int, str]]:
        """Digest of the weights, by epoch and rank."""
        found: dict[int, dict[int, str]] = {}
        for rank, epoch, digest in re.findall(r"rank (\d)/\d Epoch\[(\d+)\] weights=(\S+)", self.output):
            found.setdefault(int(epoch), {})[int(rank)] = digest
        return found

    def assert_equal_weights(self, *, ranks: int, epochs: int) -> None:
        assert sorted(self.digests) == list(range(epochs)), self.output
        for of_ranks in self.digests.values():
            assert sorted(of_ranks) == list(range(ranks)), self.output
            assert len(set(of_ranks.values())) == 1, self.output


def train(cluster: Cluster, launch: str, options: str) -> Training:
    python = "" if launch == ALONE else "python"
    command = f"mkdir -p trainer && cd trainer; export OMP_NUM_THREADS=1; launch {launch} {python} {TRAINER} {options}"
    return Training(output=cluster.on_master(command))


@pytest.fixture(scope="module")
def dist_sync(cluster: Cluster) -> Training:
    return train(cluster, TWO_SERVERS, f"--engine mxnet --kv-store dist_sync {SHORT} --model-prefix dist_sync")


@pytest.fixture(scope="module")
def horovod(cluster: Cluster) -> Training:
    return train(cluster, "--engine horovod -n 2", f"--engine horovod {SHORT} --batch-size 32 --model-prefix horovod")


def test_parameter_servers_learn_the_digits(dist_sync: Training) -> None:
    assert dist_sync.accuracy >= KNOWN, dist_sync.output
    dist_sync.assert_equal_weights(ranks=2, epochs=6)


def test_horovod_learns_the_digits(horovod: Training) -> None:
    assert horovod.accuracy >= KNOWN, horovod.output
    horovod.assert_equal_weights(ranks=2, epochs=6)


def test_horovod_learns_the_same_under_mpirun(cluster: Cluster, horovod: Training) -> None:
    options = "--engine horovod --num-epochs 2 --batch-size 32 --model-prefix mpi"
    found = train(cluster, "--launcher mpi -n 2", options)
    assert found.digests == {epoch: horovod.digests[epoch] for epoch in range(2)}, found.output


@pytest.mark.parametrize(
    ("kv_store", "launch", "options"),
    [
        ("local", ALONE, SHORT),
        ("device", ALONE, SHORT),
        ("dist_device_sync", TWO_SERVERS, SHORT),
        ("dist_async", TWO_SERVERS, "--num-epochs 20"),
    ],
)
def test_every_kv_store_of_mxnet_learns_the_digits(cluster: Cluster, kv_store: str, launch: str, options: str) -> None:
    found = train(cluster, launch, f"--engine mxnet --kv-store {kv_store} --model-prefix {kv_store} {options}")
    assert found.accuracy >= KNOWN, found.output
    # Those of dist_async meet at an epoch's end.
    assert all(len(set(of_ranks.values())) == 1 for of_ranks in found.digests.values()), found.output


# 2,000 made-up images: the last of 19 steps has 2, and the first of three ranks none of them. A low rate, as
# max-pooling takes one of two nearly equal values: with larger steps rounding alone may lead two correct runs apart.
EQUAL = "--benchmark 1 --num-epochs 2 --lr 0.001"


@pytest.fixture(scope="module")
def one_worker(cluster: Cluster) -> str:
    """The checkpoint of one that has the batches of three."""
    train(cluster, ALONE, f"--engine mxnet {EQUAL} --batch-size 111 --model-prefix one")
    return "one-0002.npz"


@pytest.mark.parametrize(
    ("launch", "engine"),
    [(f"--engine mxnet -s {NODES}", "mxnet --kv-store dist_sync"), ("--engine horovod", "horovod")],
)
def test_three_workers_learn_what_one_with_their_batches_learns(
    cluster: Cluster, one_worker: str, launch: str, engine: str
) -> None:
    name = engine.split()[0]
    found = train(cluster, launch, f"--engine {engine} {EQUAL} --batch-size 37 --model-prefix three-{name}")
    found.assert_equal_weights(ranks=NODES, epochs=2)
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


READ_WITH_TORCH = """
from pathlib import Path
from trainer.checkpoint import load
from trainer.config import TrainConfig
from trainer.engines.torch import create
from trainer.engines import State
from trainer.ranks import Ranks
from trainer.sampling import Shard
config = TrainConfig(num_classes=10)
engine = create(config, ranks=Ranks(), shard=Shard(), learning_rate=0.1)
"""
READ_WITH_MXNET = """
from pathlib import Path
from trainer.checkpoint import load
from trainer.config import TrainConfig
from trainer.engines import State
from trainer.engines.mxnet import connect
from trainer.sampling import Shard
config = TrainConfig(engine="mxnet", num_classes=10)
connection = connect(config, {})
engine = connection.create(config, ranks=connection.ranks, shard=Shard(), learning_rate=0.1)
"""
COUNT = """
weights = load(Path("%s")).state.weights
kinds = [[(name, value.shape, value.dtype) for name, value in each.items()] for each in (weights, engine.weights())]
assert kinds[0] == kinds[1]
%s
import numpy
from trainer.data.batches import prepare
from trainer.data.opening import open_data
data = open_data(config)
print("known", engine.count_correct(*prepare(data, data.held_out, numpy.arange(360))) / 360)
"""
RESTORE_TORCH = "import torch; engine._model.load_state_dict({n: torch.from_numpy(w) for n, w in weights.items()})"
RESTORE_MXNET = "engine.restore(State(weights=weights), source=0)"


def test_a_checkpoint_of_one_engine_is_read_by_the_other(cluster: Cluster, dist_sync: Training) -> None:
    torch = train(cluster, "-n 1", "--num-epochs 1 --model-prefix torch")

    def known(python: str, script: str, checkpoint: str, restore: str) -> float:
        count = COUNT % (checkpoint, restore)
        command = f"cd trainer; export PYTHONPATH=/opt/deeplearning; {python} - <<'PY'\n{script}{count}\nPY"
        [said] = re.findall(r"known (\S+)", cluster.on_master(command))
        return float(said)

    found = known(PYTORCH, READ_WITH_TORCH, "dist_sync-0006.npz", RESTORE_TORCH)
    assert found == pytest.approx(dist_sync.accuracy, abs=1e-6)
    found = known(PYTHON, READ_WITH_MXNET, "torch-0001.npz", RESTORE_MXNET)
    assert found == pytest.approx(torch.accuracy, abs=1e-6)


@pytest.mark.parametrize(
    ("engine", "launch", "options"),
    [
        ("mxnet", TWO_SERVERS, f"--kv-store dist_sync {SHORT}"),
        ("horovod", "--engine horovod -n 2", f"{SHORT} --batch-size 32"),
    ],
)
def test_a_killed_rank_costs_nothing_but_time(
    cluster: Cluster, request: pytest.FixtureRequest, engine: str, launch: str, options: str
) -> None:
    undisturbed: Training = request.getfixturevalue("dist_sync" if engine == "mxnet" else "horovod")
    job = cluster.on_master(
        "mkdir -p trainer && cd trainer; export OMP_NUM_THREADS=1; launch --detach --max-restarts 1"
        f" {launch} python {TRAINER} --engine {engine} {options} --model-prefix killed-{engine}"
        " --checkpoint-seconds 0.5 --disp-batches 1 2>/dev/null"
    )
    log = wait_for(cluster, job, r"Epoch\[1\] Batch \[2\]")
    [pid, *_] = re.findall(r"rank 1/2 host=\S+ instance=\S+ pid=(\d+)", log)
    cluster.on_master(f"ssh {WORKERS[1]} kill -KILL {pid}")

    log = wait_for(cluster, job, r"Validation-accuracy=\S+ images/s")
    assert re.search(r"rank 0/2 going on at epoch [12345] sample \d+, from the checkpoint of rank", log), log
    last = max(undisturbed.digests)
    assert Training(output=log).digests[last] == undisturbed.digests[last], log
    wait_for_end(cluster, job)


def wait_for(cluster: Cluster, job: str, pattern: str) -> str:
    until = time.monotonic() + DEADLINE_S
    while not re.search(pattern, log := cluster.on_master(f"launch logs {job}")):
        assert time.monotonic() < until, log
        time.sleep(0.5)
    return log


def wait_for_end(cluster: Cluster, job: str) -> None:
    until = time.monotonic() + DEADLINE_S
    while (status := json.loads(cluster.on_master(f"launch status --json {job}")))["state"] == "RUNNING":
        assert time.monotonic() < until, status
        time.sleep(0.5)
    assert status["state"] == "SUCCEEDED", status


@pytest.mark.parametrize(
    ("launch", "engine"), [("--engine mxnet -s 1", "mxnet --kv-store dist_sync"), ("--engine horovod", "horovod")]
)
def test_fails_when_one_rank_fails(cluster: Cluster, launch: str, engine: str) -> None:
    # A file where the directory should be: MXNet would wait for the others before it ends this process.
    cluster.on(WORKERS[2], "touch blocked")
    prefix = "--model-prefix /home/ubuntu/blocked/net"
    started = time.monotonic()
    output = cluster.on_master(f"launch {launch} python {TRAINER} --engine {engine} {prefix}; echo code $?")
    assert time.monotonic() - started < DEADLINE_S / 2
    assert re.search(r"rank 2/3 trainer: cannot write checkpoints to /home/ubuntu/blocked, File exists", output), output
    assert output.splitlines()[-1] == "code 1", output


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (
            f"launch -s 1 python {TRAINER}",
            "--engine torch needs `launch --engine torch`, got processes of the engine mxnet (DMLC_ROLE is worker)",
        ),
        (
            f"launch python {TRAINER} --engine mxnet",
            "--engine mxnet needs `launch --engine mxnet`, got processes of the engine torch (WORLD_SIZE is 3)",
        ),
        (
            f"launch -s 1 python {TRAINER} --engine mxnet",
            "kv_store device is for one worker, got 3: dist_sync is for all",
        ),
        (
            f"{PYTHON} {TRAINER} --engine mxnet --kv-store dist_sync",
            "kv_store dist_sync needs MXNet's servers, which `launch --engine mxnet` starts",
        ),
    ],
)
def test_fails_when_launcher_and_trainer_do_not_go_together(cluster: Cluster, command: str, reason: str) -> None:
    output = cluster.on_master(f"{command}; echo code $?")
    assert f"trainer: {reason}\n" in output
    assert "Traceback" not in output
    assert output.splitlines()[-1] == "code 2", output


NETWORKS = """
import numpy
from trainer.engines.gluon import named_parameters
from trainer.models.gluon import build
from mxnet import nd
for network, shape in ("lenet", (1, 28, 28)), ("resnet20", (3, 32, 32)), ("resnet110", (3, 32, 32)):
    model = build(network, classes=10, image_shape=shape)
    trained = [each for each in named_parameters(model).values() if each.grad_req != "null"]
    scores = model(nd.zeros((2, *shape))).asnumpy()
    assert scores.shape == (2, 10) and numpy.isfinite(scores).all()
    print(network, sum(each.data().size for each in trained))
"""


def test_networks_have_the_sizes_known_from_the_literature(cluster: Cluster) -> None:
    output = cluster.on_master(f"export PYTHONPATH=/opt/deeplearning; {PYTHON} - <<'PY'\n{NETWORKS}\nPY")
    assert output.splitlines() == ["lenet 431080", "resnet20 269722", "resnet110 1727962"]


RATES = """
import numpy
from trainer.config import TrainConfig
from trainer.data.batches import prepare
from trainer.data.opening import open_data
from trainer.engines.mxnet import connect
from trainer.sampling import Shard
config = TrainConfig(engine="mxnet", wd=0, num_classes=10)
data = open_data(config)
connection = connect(config, {})
engine = connection.create(config, ranks=connection.ranks, shard=Shard(), learning_rate=0.1)
def step(samples):
    before = engine.weights()["9.weight"]
    engine.compute_gradients(*prepare(data, data.train, numpy.arange(samples)))
    engine.update(samples=8)
    return engine.weights()["9.weight"] - before
first = step(8)
engine.set_learning_rate(0.05)
print(numpy.allclose(step(0), 0.5 * 0.9 * first, rtol=1e-3, atol=1e-7))
"""


def test_a_new_learning_rate_holds_for_the_momentum_too_as_with_torch(cluster: Cluster) -> None:
    assert cluster.on_master(f"export PYTHONPATH=/opt/deeplearning; {PYTHON} - <<'PY'\n{RATES}\nPY") == "True"


def test_the_checkpoint_lies_on_the_master(cluster: Cluster, dist_sync: Training) -> None:
    assert "checkpoint=dist_sync-0006.npz" in dist_sync.output
    assert int(cluster.on(MASTER, "stat -c %s trainer/dist_sync-0006.npz")) > 431_080 * 4
