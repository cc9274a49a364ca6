"""Test that the main job trains on all nodes."""

import gzip
import re
import struct
import subprocess
from pathlib import Path

import boto3
import numpy as np
import pytest

from tests.e2e.support.deployed_cluster import NODES, SHARED_CONNECTION, DeployedCluster, aliases, stack_outputs
from trainer.data.dataset import Samples
from trainer.data.digits import load_digits

MASTER = "deeplearning-master"
EXAMPLES = Path(__file__).parents[3] / "examples"
# As in AWS's articles on deeplearning-cfn (docs/from-deeplearning-cfn.md). On CPU nodes, seq prints nothing, and --gpus
# gets no value.
TRAIN = (
    "cd && launch -n $DEEPLEARNING_WORKERS_COUNT -H $DEEPLEARNING_WORKERS_PATH python /opt/deeplearning/trainer"
    " --gpus $(seq -s , 0 1 $(($DEEPLEARNING_WORKER_GPU_COUNT - 1))) --network lenet --kv-store dist_sync"
)


@pytest.fixture(scope="module")
def job(cluster: DeployedCluster) -> str:
    return cluster.user.ssh(MASTER, TRAIN + " 2>&1")


def test_every_rank_ran_on_an_instance_of_its_own(cluster: DeployedCluster, job: str) -> None:
    found = dict(re.findall(rf"rank (\d)/{NODES} host=\S+ instance=(i-\w+)", job))
    assert set(found) == {str(rank) for rank in range(NODES)}
    assert set(found.values()) == set(cluster.addresses)
    assert found["0"] == cluster.master["InstanceId"]


def test_weights_are_bit_equal_on_all_ranks_after_every_epoch(job: str) -> None:
    digests: dict[str, dict[str, str]] = {}
    for rank, epoch, digest in re.findall(r"rank (\d)/\d Epoch\[(\d+)\] weights=sha256:(\w+)", job):
        digests.setdefault(epoch, {})[rank] = digest
    assert len(digests) > 1
    for by_rank in digests.values():
        assert len(by_rank) == NODES
        assert len(set(by_rank.values())) == 1
    assert len({by_rank["0"] for by_rank in digests.values()}) == len(digests)


def test_validation_digits_are_classified(job: str) -> None:
    final = re.findall(r"Validation-accuracy=([\d.]+) images/s=([\d.]+)", job)
    assert len(final) == 1
    assert float(final[0][0]) >= 0.98
    assert float(final[0][1]) > 0


def test_checkpoint_is_written_on_the_master(cluster: DeployedCluster, job: str) -> None:
    path = re.findall(r"checkpoint=(\S+)", job)[0]
    assert int(cluster.on(MASTER, f"cd && stat -c %s {path}")) > 100_000


@pytest.mark.parametrize(
    ("line", "ranks", "message"),
    [
        ("python torchrun_ddp.py", NODES, ""),
        # This is torchrun's own line with its first word changed.
        (
            "--nnodes=1:2 --nproc_per_node=1 --max_restarts=0 --rdzv-id=7 --rdzv-backend=c10d"
            " --rdzv-endpoint=$(hostname):29400 torchrun_ddp.py --epochs 8",
            2,
            "launch: ignored: --rdzv-endpoint, --rdzv-id ",
        ),
    ],
)
def test_script_for_torchrun_runs_unmodified(cluster: DeployedCluster, line: str, ranks: int, message: str) -> None:
    copy = ["rsync", "-a", "-e", " ".join(cluster.user.ssh_command("", options=SHARED_CONNECTION)[:-1]), f"{EXAMPLES}/"]
    cluster.user.run(*copy, f"{MASTER}:examples/")
    shown = cluster.on(MASTER, f"cd examples && launch --sync-dst-dir ddp {line} 2>&1")
    assert message in shown
    found = dict(re.findall(rf"rank (\d)/{ranks} accuracy=(\S+)", shown))
    assert set(found) == {str(rank) for rank in range(ranks)}, shown
    # All ranks have the same weights.
    assert len(set(found.values())) == 1, shown
    assert float(found["0"]) >= 0.9, shown


@pytest.mark.parametrize("code", [1, 3])
def test_launch_ends_with_the_exit_code_of_the_failed_rank(cluster: DeployedCluster, code: int) -> None:
    rank = f"import os, time; os.environ['RANK'] == '2' and os._exit({code}); time.sleep(60)"
    with pytest.raises(subprocess.CalledProcessError) as failure:
        cluster.on(MASTER, f'launch python3 -c "{rank}"')
    assert failure.value.returncode == code
    for alias in aliases():
        # The brackets keep pgrep -f from finding the shell that carries its own pattern.
        assert cluster.on(alias, "pgrep -fc '[t]ime.sleep' || true") == "0"


def test_no_rank_reaches_the_users_ssh_agent(cluster: DeployedCluster) -> None:
    printed = cluster.user.ssh(MASTER, "launch 'echo agent=$SSH_AUTH_SOCK'")
    assert sorted(line.split()[-1] for line in printed.splitlines()) == ["agent="] * NODES


def test_training_reads_and_checkpoints_to_the_bucket(cluster: DeployedCluster) -> None:
    bucket, s3 = stack_outputs()["ClusterBucket"], boto3.client("s3")
    for name, content in mnist_files().items():
        s3.put_object(Bucket=bucket, Key=f"sets/mnist/{name}", Body=content)
    places = "--data-dir s3://$DEEPLEARNING_BUCKET/sets/mnist --model-prefix s3://$DEEPLEARNING_BUCKET/runs/net"
    options = f"--kv-store dist_sync --dataset mnist {places} --num-epochs 2"
    output = cluster.on(MASTER, f"cd && launch -n 2 python /opt/deeplearning/trainer {options} 2>&1")
    [(accuracy, place)] = re.findall(r"Validation-accuracy=(\S+) images/s=\S+ checkpoint=(\S+)", output)
    assert float(accuracy) >= 0.8, output
    assert place == f"s3://{bucket}/runs/net-0002.npz"
    kept = {entry["Key"]: entry["Size"] for entry in s3.list_objects_v2(Bucket=bucket, Prefix="runs/")["Contents"]}
    assert set(kept) == {"runs/net-0002.npz", "runs/net-best.npz"}
    assert min(kept.values()) > 100_000


def mnist_files() -> dict[str, bytes]:
    """Write the trainer's own digits in MNIST's format and size."""
    data = load_digits((1, 28, 28))
    return {**_idx_files("train", data.train), **_idx_files("t10k", data.validation)}


def _idx_files(part: str, samples: Samples) -> dict[str, bytes]:
    images = samples.read(np.arange(len(samples.labels)))[:, 0]
    return {
        f"{part}-images-idx3-ubyte.gz": gzip.compress(_idx(images)),
        f"{part}-labels-idx1-ubyte.gz": gzip.compress(_idx(samples.labels.astype(np.uint8))),
    }


def _idx(values: np.ndarray) -> bytes:
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes()
