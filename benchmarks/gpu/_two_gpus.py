"""Measure what two GPUs gain from sending gradients during the backward pass: the trainer with and without buckets."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from launcher.runner.port import claim_port

REPOSITORY: Final = Path(__file__).resolve().parents[2]
TIMEOUT_S: Final = 600
PROGRAM: Final = """
import os, sys
os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["RANK"]
import trainer.distributed.reduce.gradient_buckets
trainer.distributed.reduce.gradient_buckets.BUCKET_BYTES = int(sys.argv.pop(1))
from trainer.train import main_and_exit
main_and_exit()
"""
OPTIONS: Final = (
    *("--network", "resnet50", "--benchmark", "1", "--num-examples", "4096", "--num-epochs", "3"),
    *("--dtype", "bfloat16", "--lr", "0.01", "--kv-store", "dist_sync", "--resume", "never"),
    *("--reduction", "buckets"),
)
BUCKET_BYTES: Final = 25 * 2**20
ONE_BUCKET: Final = 2**40


def overlap_gain(*, rounds: int, batch: int) -> float:
    """Return the ratio of images/s with and without buckets, each the best of its rounds, which run in turn."""
    pairs = [(_speed(BUCKET_BYTES, batch=batch), _speed(ONE_BUCKET, batch=batch)) for _ in range(rounds)]
    return max(speed for speed, _ in pairs) / max(speed for _, speed in pairs)


def _speed(bucket_bytes: int, *, batch: int) -> float:
    """Train with two ranks and ``batch`` images per step each; return images/s of both."""
    arguments = [sys.executable, "-c", PROGRAM, str(bucket_bytes), *OPTIONS, "--batch-size", str(batch)]
    claim = claim_port()
    port = str(claim.port)
    common = {**os.environ, "PYTHONPATH": str(REPOSITORY), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    with tempfile.TemporaryDirectory() as directory:
        ranks = [
            subprocess.Popen(
                arguments,
                cwd=directory,
                env={**common, "RANK": str(rank), "WORLD_SIZE": "2", "NCCL_SOCKET_IFNAME": "lo"},
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        try:
            outputs = [rank.communicate(timeout=TIMEOUT_S)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
            claim.close()
    match = re.search(r"images/s=([\d.]+)", outputs[0])
    if match is None:
        raise SystemExit("error: a run with two GPUs failed")
    return float(match[1])
