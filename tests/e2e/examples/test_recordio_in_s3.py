"""Train on RecordIO files in the bucket on two nodes, without a copy, with the release's boto3 and the nodes' role."""

import re
from pathlib import Path

import boto3
import numpy as np
import pytest
from PIL import Image

from tests.e2e.support.deployed_cluster import DeployedCluster, stack_outputs
from trainer.im2rec.conversion import convert

TRAIN = (
    "launch -n 2 --venv frameworks {sync} python /opt/deeplearning/trainer --network lenet --image-shape 1,28,28"
    " --num-classes 2 --num-epochs 2 --batch-size 4 --resume never"
    " --data-train {place}/train.rec --data-val {place}/val.rec 2>&1 || true"
)
pytestmark = pytest.mark.soak


def test_training_from_the_bucket_ends_with_the_weights_of_training_from_disks(
    cluster_with_packages: DeployedCluster, tmp_path: Path
) -> None:
    s3, bucket = boto3.client("s3"), stack_outputs()["ClusterBucket"]
    for part in ("train", "val"):
        for number in range(24):
            path = tmp_path / part / "ab"[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.random.default_rng(number).integers(0, 256, (40, 30), np.uint8)).save(path)
        convert(tmp_path / part, tmp_path / part)
        for suffix in ("rec", "idx"):
            s3.upload_file(str(tmp_path / f"{part}.{suffix}"), bucket, f"sets/{part}.{suffix}")
    in_s3, on_disks = (
        cluster_with_packages.on("deeplearning-master", f"cd && {TRAIN.format(sync=sync, data=data)}")
        for sync, data in (
            ("", "s3://$DEEPLEARNING_BUCKET/sets"),
            ("--sync-s3 s3://$DEEPLEARNING_BUCKET/sets sets", "sets"),
        )
    )
    digests = [set(re.findall(r"Epoch\[1\] weights=(sha256:\w+)", said)) for said in (in_s3, on_disks)]
    assert len(digests[0]) == 1, in_s3
    assert digests[0] == digests[1], on_disks
