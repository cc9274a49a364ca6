"""Define programs for durable trainings: a script of the user's own, and the bundled trainer.

A program takes STEPS steps on all nodes. Until the time in SLOW_UNTIL they are slow, so that a test can interrupt it
there; the others are fast, so that the test need not wait long for its end.
"""

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from local.faults.clients import client
from local.storage.client_install import EXPORTS
from tests.e2e.support.deployed_cluster import NODES, stack_outputs

STEPS = 4000
SLOW_STEP_S = 0.1
"""Seconds that a step takes before the time at which the training may end."""
BATCH = 64
"""Samples per node and step of the bundled trainer."""
STEPS_PER_EPOCH = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """A program of a durable training, and where it reports and saves its step."""

    file: str
    """Name of its Python file in the job's directory."""
    source: str
    line: str
    """End of launch's command line, where {name} is the name of the training."""
    begun: str
    """Text in the log once it trains from the first step."""
    weights: str
    """Pattern that finds the digest of its final weights in the log."""
    resumed_steps: Callable[[str], list[int]]
    """Returns from a log the steps at which attempts have gone on."""
    saved_step: Callable[[str], int]
    """Returns the step of the last checkpoint of the training with a name; 0 if there is none."""


_SCRIPT = f"""\
import hashlib, os, signal, subprocess, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, place = dist.get_rank(), os.environ["CHECKPOINT"]
torch.manual_seed(7)
model = torch.nn.Linear(32, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
ends = []
signal.signal(signal.SIGTERM, lambda *_: ends.append(True))


def copy(*words):
    return subprocess.run(["aws", "s3", "cp", "--quiet", *words], check=False).returncode == 0


def save(step):
    torch.save({{"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}}, "/tmp/net.pt")
    assert copy("--metadata", f"step={{step}}", "/tmp/net.pt", place)


saved = [None]
if rank == 0 and copy(place, "/tmp/net.pt"):
    saved = [torch.load("/tmp/net.pt", map_location="cpu")]
dist.broadcast_object_list(saved, src=0)
begin = 0
if saved[0] is not None:
    begin = saved[0]["step"]
    model.load_state_dict(saved[0]["model"])
    optimizer.load_state_dict(saved[0]["optimizer"])
if rank == 0:
    print("goes on at step", begin, flush=True)
slow_until = float(os.environ.get("SLOW_UNTIL", "0"))
for step in range(begin, {STEPS}):
    generator = torch.Generator().manual_seed(step * dist.get_world_size() + rank)
    batch = torch.randn(16, 32, generator=generator)
    optimizer.zero_grad()
    (model(batch) - batch[:, :8]).square().mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    is_slow = time.time() < slow_until
    time.sleep({SLOW_STEP_S} if is_slow else 0)
    if rank == 0 and (ends or (is_slow and step % 100 == 99)):
        save(step + 1)
    if ends:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
if rank == 0:
    weights = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
    print("weights", hashlib.sha256(weights).hexdigest(), flush=True)
"""
_NETWORK = f"""\
import os, time
from torch import nn

slow_until = float(os.environ.get("SLOW_UNTIL", "0"))


class SlowFlatten(nn.Module):
    def forward(self, images):
        time.sleep({SLOW_STEP_S} if self.training and time.time() < slow_until else 0)
        return images.flatten(1)


def build(classes, image_shape):
    channels, height, width = image_shape
    return nn.Sequential(SlowFlatten(), nn.Linear(channels * height * width, classes))
"""
_OPTIONS = (
    f"--network slow:build --dataset synthetic --image-shape 1,28,28 --batch-size {BATCH}"
    f" --num-examples {BATCH * NODES * STEPS_PER_EPOCH} --num-epochs {STEPS // STEPS_PER_EPOCH} --checkpoint-seconds 5"
)
_POSITION = re.compile(r"-resume-[\d.]+-(\d+)-(\d+)\.npz$")
"""Matches the end of a checkpoint's name, with its epoch and sample."""


def _step(epoch: str, sample: str) -> int:
    """Return the step of the bundled trainer at a position."""
    return int(epoch) * STEPS_PER_EPOCH + int(sample) // (BATCH * NODES)


def _own_steps(log: str) -> list[int]:
    return [int(step) for step in re.findall(r"goes on at step ([1-9]\d*)", log)]


def _trainers_steps(log: str) -> list[int]:
    return [_step(*position) for position in re.findall(r"resuming at epoch (\d+) sample (\d+)", log)]


def _own_saved_step(name: str) -> int:
    s3, bucket, key = client("s3"), stack_outputs()["ClusterBucket"], f"{name}.pt"
    if not s3.list_objects_v2(Bucket=bucket, Prefix=key)["KeyCount"]:
        return 0
    return int(s3.head_object(Bucket=bucket, Key=key)["Metadata"]["step"])


def _step_in_bucket(name: str) -> int:
    listing = client("s3").list_objects_v2(Bucket=stack_outputs()["ClusterBucket"], Prefix=f"runs/{name}-resume-")
    return _latest(item["Key"] for item in listing.get("Contents", []))


def _step_in_shared_directory(name: str) -> int:
    # The files are readable here even while no node runs.
    shared = Path(os.environ["LOCAL_AWS_DIR"], EXPORTS, stack_outputs()["SharedStorage"])
    return _latest(path.name for path in shared.glob(f"{name}-resume-*.npz"))


def _latest(names: Iterable[str]) -> int:
    return max((_step(*position.groups()) for name in names if (position := _POSITION.search(name))), default=0)


def _trainer(*, prefix: str, saved_step: Callable[[str], int]) -> Program:
    return Program(
        file="slow.py",
        source=_NETWORK,
        line=f"python /opt/deeplearning/trainer {_OPTIONS} --model-prefix {prefix}",
        begun=f"rank 0/{NODES} Epoch[0] Batch [",
        weights=rf"rank 0/{NODES} Epoch\[{STEPS // STEPS_PER_EPOCH - 1}\] weights=sha256:(\w+)",
        resumed_steps=_trainers_steps,
        saved_step=saved_step,
    )


OWN_SCRIPT = Program(
    file="train.py",
    source=_SCRIPT,
    line="--env CHECKPOINT:s3://$DEEPLEARNING_BUCKET/{name}.pt train.py",
    begun="goes on at step 0",
    weights=r"weights (\w+)",
    resumed_steps=_own_steps,
    saved_step=_own_saved_step,
)
TRAINER_IN_BUCKET = _trainer(prefix="s3://$DEEPLEARNING_BUCKET/runs/{name}", saved_step=_step_in_bucket)
TRAINER_IN_SHARED_DIRECTORY = _trainer(prefix="/shared/{name}", saved_step=_step_in_shared_directory)
