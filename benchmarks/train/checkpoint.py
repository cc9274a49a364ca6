"""Measure how long a save stops training, and its total cost, compared with torch.save and with async_save.

Training stops while the loop takes a checkpoint, and before the next update until the weights are copied. The baseline
is ``torch.save`` of the same weights and momentum into the same directory. It returns before the data is on disk; our
save ends only when the data is on disk. ``checkpoint_stall`` is our time divided by the baseline's for ResNet-50, the
largest network, and ``checkpoint_stall_lenet`` for the smallest.

A save costs more than that: copying and writing share CPU and memory with the concurrent steps. ``checkpoint_cost`` and
``checkpoint_cost_lenet`` are all the seconds that a save takes from training, divided by those of ``torch.save``: the
extra time of the steps from the call until the file is on disk, compared with as many steps right before. The steps are
complete, with batches too small to hide much, and no core is idle.

``checkpoint_stall_async_save`` and ``checkpoint_cost_async_save``, and both with ``_lenet``, are the same of
torch.distributed.checkpoint's ``async_save`` (_async_save.py), to compare ours with. It copies and writes during the
next steps too, and its files are on disk when it ends.

All run in turn; results are medians.
Run by ``make bench B=checkpoint`` or ``python -m benchmarks.train.checkpoint [--rounds N]``.
"""

import argparse
import os
import statistics
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from benchmarks.harness.nodes import machine
from benchmarks.train._async_save import AsyncSaves, Step
from benchmarks.train._async_save import measure as measure_async
from trainer.checkpoint.manager import CheckpointManager
from trainer.checkpoint.store import CheckpointStore
from trainer.config.settings import TrainConfig
from trainer.distributed.data_parallel import DataParallelGroup
from trainer.distributed.world import World
from trainer.progress import Progress
from trainer.torch_backend.backend import TorchBackend
from trainer.torch_backend.create_backend import create_backend

CONFIGS = {
    # By the suffix of the figures' names.
    "": TrainConfig(network="resnet50", dataset="synthetic", image_shape=(3, 64, 64)),
    "_lenet": TrainConfig(network="lenet", dataset="synthetic"),
}
BATCH_SIZE = 2
MIN_STEPS = 2
"""Smallest number of steps to compare, even if a checkpoint is written within fewer."""


@dataclass(kw_only=True, slots=True)
class Rounds:
    """Measured seconds of each round."""

    stall_s: list[float] = field(default_factory=list)
    """Time for which a save stops training."""
    torch_save_s: list[float] = field(default_factory=list)
    total_cost_s: list[float] = field(default_factory=list)
    """Extra time of the steps during a save, the stall included."""
    step_s: list[float] = field(default_factory=list)
    """Time of a step without a save."""
    async_stall_s: list[float] = field(default_factory=list)
    """Time for which async_save stops training."""
    async_cost_s: list[float] = field(default_factory=list)
    """Extra time of the steps during async_save."""


def main() -> int:
    """Measure in a temporary directory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    figures = []
    for name, config in CONFIGS.items():
        print(machine(), file=sys.stderr)
        with TemporaryDirectory() as directory:
            rounds = measure(config, Path(directory), options.rounds)
        for what, seconds in (
            ("stall", rounds.stall_s),
            ("total cost", rounds.total_cost_s),
            ("torch.save", rounds.torch_save_s),
            ("step", rounds.step_s),
            ("async_save stall", rounds.async_stall_s),
            ("async_save total cost", rounds.async_cost_s),
        ):
            print(
                f"{config.network} {what}: {' '.join(f'{1000 * time_s:.2f}' for time_s in seconds)} ms", file=sys.stderr
            )
        peer_s = statistics.median(rounds.torch_save_s)
        figures.append(f"checkpoint_stall{name} {statistics.median(rounds.stall_s) / peer_s:.3f} ratio")
        figures.append(f"checkpoint_cost{name} {statistics.median(rounds.total_cost_s) / peer_s:.2f} ratio")
        figures.append(
            f"checkpoint_stall_async_save{name} {statistics.median(rounds.async_stall_s) / peer_s:.3f} ratio"
        )
        figures.append(f"checkpoint_cost_async_save{name} {statistics.median(rounds.async_cost_s) / peer_s:.2f} ratio")
    print("\n".join(figures))
    return 0


def measure(config: TrainConfig, directory: Path, count: int) -> Rounds:
    """Save twice between steps, then with torch in both ways."""
    backend = create_backend(config, world=World(), dp=DataParallelGroup(), learning_rate=1e-6)
    store = CheckpointStore(str(directory / "net"))
    checkpoints = CheckpointManager(config, dp=DataParallelGroup(), store=store)
    rounds = Rounds()
    saves = AsyncSaves(directory / "async")
    step = Step(
        compute=partial(forward_backward, backend, config),
        update=partial(backend.optimizer_step, num_samples=BATCH_SIZE),
    )
    steps = MIN_STEPS
    # The first round loads libraries, allocates memory, and finds how many steps a write takes.
    for number in range(count + 1):
        start = time.perf_counter()
        checkpoints.save(backend, Progress(run_started_at=1.0, epoch=number))
        stall_s = time.perf_counter() - start
        step.compute()
        start = time.perf_counter()
        backend.wait_for_snapshot()
        stall_s += time.perf_counter() - start
        step.update()
        store.wait_until_written()
        step_s = statistics.mean(run_step(backend, config) for _ in range(steps))
        start, steps = time.perf_counter(), 0
        checkpoints.save(backend, Progress(run_started_at=2.0, epoch=number))
        while store.is_writing or steps < MIN_STEPS:
            run_step(backend, config)
            steps += 1
        total_cost_s = time.perf_counter() - start - steps * step_s
        store.wait_until_written()
        torch_save_s = save_with_torch(backend, directory / "peer.pt")
        async_stall_s, async_cost_s = measure_async(saves, state_tensors(backend), step, steps=steps, least=MIN_STEPS)
        if number:
            rounds.stall_s.append(stall_s)
            rounds.total_cost_s.append(total_cost_s)
            rounds.torch_save_s.append(torch_save_s)
            rounds.step_s.append(step_s)
            rounds.async_stall_s.append(async_stall_s)
            rounds.async_cost_s.append(async_cost_s)
    saves.close()
    return rounds


def state_tensors(backend: TorchBackend) -> dict[str, torch.Tensor]:
    """Return the weights and momentum."""
    state = backend.state()
    return {name: torch.from_numpy(value) for name, value in {**state.weights, **state.optimizer}.items()}


def save_with_torch(backend: TorchBackend, path: Path) -> float:
    """Save the weights and momentum; return the seconds it took."""
    tensors = state_tensors(backend)
    start = time.perf_counter()
    torch.save(tensors, path)
    took = time.perf_counter() - start
    # Flush, or the kernel would write this during the next measurement.
    os.sync()
    return took


def run_step(backend: TorchBackend, config: TrainConfig) -> float:
    """Run a step; return the seconds it took."""
    start = time.perf_counter()
    forward_backward(backend, config)
    backend.optimizer_step(num_samples=BATCH_SIZE)
    return time.perf_counter() - start


def forward_backward(backend: TorchBackend, config: TrainConfig) -> None:
    """Do the part of a step that precedes the update."""
    images = np.zeros((BATCH_SIZE, *config.input_shape), np.float32)
    backend.forward_backward(images, np.zeros(BATCH_SIZE, np.int64))


if __name__ == "__main__":
    sys.exit(main())
