"""Test that every framework learns the digits with each of its kv-stores, and reads checkpoints of the others."""

import re

import pytest

from tests.frameworks.mxnet_cluster import MASTER, MxnetCluster
from tests.frameworks.training import MIN_ACCURACY, PYTHON, PYTORCH, SHORT, TRAINER, TWO_SERVERS, Training, train


def test_all_reduce_learns_the_digits(all_reduce: Training) -> None:
    assert all_reduce.accuracy >= MIN_ACCURACY, all_reduce.output
    all_reduce.assert_equal_weights(ranks=2, epochs=12)


def test_parameter_servers_learn_the_digits(dist_sync: Training) -> None:
    assert dist_sync.accuracy >= MIN_ACCURACY, dist_sync.output
    dist_sync.assert_equal_weights(ranks=2, epochs=6)


def test_horovod_learns_the_digits(horovod: Training) -> None:
    assert horovod.accuracy >= MIN_ACCURACY, horovod.output
    horovod.assert_equal_weights(ranks=2, epochs=6)


def test_horovod_learns_the_same_under_mpirun(cluster: MxnetCluster, horovod: Training) -> None:
    options = "--framework horovod --num-epochs 2 --batch-size 32 --model-prefix mpi"
    training = train(cluster, "--launcher mpi -n 2", options)
    assert training.digests == {epoch: horovod.digests[epoch] for epoch in range(2)}, training.output


@pytest.mark.parametrize(("kv_store", "options"), [("dist_device_sync", SHORT), ("dist_async", "--num-epochs 20")])
def test_other_kv_stores_with_servers_learn_the_digits(cluster: MxnetCluster, kv_store: str, options: str) -> None:
    training = train(
        cluster, TWO_SERVERS, f"--framework mxnet --kv-store {kv_store} --model-prefix {kv_store} {options}"
    )
    assert training.accuracy >= MIN_ACCURACY, training.output
    # The user should know this before a spot instance is interrupted.
    assert ("none when it is told to stop (SIGTERM)" in training.output) == (kv_store == "dist_async"), training.output
    # Workers of dist_async synchronize at an epoch's end.
    assert all(len(set(of_ranks.values())) == 1 for of_ranks in training.digests.values()), training.output


@pytest.mark.parametrize("alone", [f"python {TRAINER}", f"WORLD_SIZE=1 {PYTHON} {TRAINER} --framework mxnet {SHORT}"])
def test_every_kv_store_of_one_worker_learns_the_digits(cluster: MxnetCluster, alone: str) -> None:
    # One worker on each of two nodes, which do not know each other.
    output = cluster.on_master(
        "export OMP_NUM_THREADS=1; launch -n 2"
        f" 'set -- local device; shift $RANK; {alone} --kv-store $1 --model-prefix trainer/$1'"
    )
    accuracies = [float(accuracy) for accuracy in re.findall(r"rank \d/\d Validation-accuracy=(\S+) images/s", output)]
    assert len(accuracies) == 2, output
    assert min(accuracies) >= MIN_ACCURACY, output


READ_WITH_TORCH = """
from pathlib import Path
from trainer.checkpoint.format import load_checkpoint
from trainer.config.settings import TrainConfig
from trainer.torch_backend.create_backend import create_backend
from trainer.backend import TrainingState
from trainer.distributed.world import World
from trainer.distributed.data_parallel import DataParallelGroup
config = TrainConfig(num_classes=10)
backend = create_backend(config, world=World(), dp=DataParallelGroup(), learning_rate=0.1)
"""
READ_WITH_MXNET = """
from pathlib import Path
from trainer.checkpoint.format import load_checkpoint
from trainer.config.settings import TrainConfig
from trainer.backend import TrainingState
from trainer.mxnet_backend.create_backend import init
from trainer.distributed.data_parallel import DataParallelGroup
config = TrainConfig(framework="mxnet", num_classes=10)
framework = init(config, {})
backend = framework.create_backend(config, world=framework.world, dp=DataParallelGroup(), learning_rate=0.1)
"""
COUNT = """
weights = load_checkpoint(Path("%s")).state.weights
kinds = [[(name, value.shape, value.dtype) for name, value in each.items()] for each in (weights, backend.weights())]
assert kinds[0] == kinds[1]
%s
import numpy
from trainer.data.batches import load_and_transform
from trainer.data.open_dataset import open_data
data = open_data(config)
print("known", backend.count_correct(*load_and_transform(data, data.validation, numpy.arange(360))) / 360)
"""
RESTORE_TORCH = "import torch; backend._model.load_state_dict({n: torch.from_numpy(w) for n, w in weights.items()})"
RESTORE_MXNET = "backend.restore(TrainingState(weights=weights), source=0)"


def test_checkpoint_of_one_backend_is_read_by_the_other(
    cluster: MxnetCluster, all_reduce: Training, dist_sync: Training
) -> None:
    def accuracy_of_checkpoint(python: str, script: str, checkpoint: str, restore: str) -> float:
        count = COUNT % (checkpoint, restore)
        command = f"cd trainer; export PYTHONPATH=/opt/deeplearning; {python} - <<'PY'\n{script}{count}\nPY"
        [printed] = re.findall(r"known (\S+)", cluster.on_master(command))
        return float(printed)

    digest = accuracy_of_checkpoint(PYTORCH, READ_WITH_TORCH, "dist_sync-0006.npz", RESTORE_TORCH)
    assert digest == pytest.approx(dist_sync.accuracy, abs=1e-6)
    digest = accuracy_of_checkpoint(PYTHON, READ_WITH_MXNET, "torch-0012.npz", RESTORE_MXNET)
    assert digest == pytest.approx(all_reduce.accuracy, abs=1e-6)


def test_checkpoint_is_on_the_master(cluster: MxnetCluster, dist_sync: Training) -> None:
    assert "checkpoint=dist_sync-0006.npz" in dist_sync.output
    assert int(cluster.on(MASTER, "stat -c %s trainer/dist_sync-0006.npz")) > 431_080 * 4
