"""Measure the trainer on one GPU; compare it with timm's benchmark script and with the GPU's limits.

    python -m benchmarks.gpu.gpu [--rounds N] [--timm PATH/benchmark.py] [--batch-size N]

Needs a checkout, and a Python with torch, numpy and a GPU; exits with 1 without one. Results:

- ``gpu_resnet50`` (bfloat16, synthetic 3x224x224), ``gpu_resnext110`` (3x32x32) and ``gpu_resnext110_graphs`` (the same
  with CUDA graphs), in images/s
- ``gpu_checkpoint_stall``: delay of the steps by a concurrent checkpoint copy, divided by the time of a torch.save of
  the same state to memory, each the best of all rounds (below 0 it is noise)
- ``gpu_loop_resident``, ``gpu_loop_memory`` and ``gpu_loop_jpeg``: speed of the whole loop relative to the bare steps,
  with the dataset on the GPU, in the host's memory, and in JPEG files that the loop reads and decodes
- ``gpu_vs_timm``, if timm is installed from a checkout: our speed relative to timm's, each the best of its rounds
- ``gpu_overlap``, with two GPUs: the gain from sending gradients during the backward pass

Operations, bytes and the shortest possible time (benchmarks/gpu/_roofline.py) are on stderr.
``make bench`` leaves it out; run ``make bench B=gpu``.
"""

import argparse
import gc
import importlib.util
import io
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import numpy as np

from benchmarks.gpu._timm import find_timm, timm_speed
from benchmarks.gpu._two_gpus import overlap_gain

STEPS: Final = 30
WARM_UP: Final = 15
JPEG_STEPS: Final = 6
"""Steps of an epoch over JPEG files; to make a file takes longer than to read it."""


def main() -> int:
    """Measure everything; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timm", type=Path, default=find_timm())
    parser.add_argument("--batch-size", type=int, default=256)
    options = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        log(f"error: no torch in {sys.executable}")
        return 1
    import torch

    if not torch.cuda.is_available():
        log(f"error: no GPU on this machine that torch {torch.__version__} can use")
        return 1
    log(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, best of {options.rounds} rounds")
    resnet50 = settings("resnet50", (3, 224, 224), num_classes=1000, batch=options.batch_size)
    resnext110 = settings("resnext110", (3, 32, 32), num_classes=10, batch=4 * options.batch_size)
    best, best_timm = 0.0, 0.0
    for _ in range(options.rounds):
        best = max(best, StepBench(resnet50).speed())
        if options.timm is not None:
            # Free all memory: timm reduces its batch size when memory is short.
            gc.collect()
            torch.cuda.empty_cache()
            best_timm = max(best_timm, timm_speed(options.timm, batch=options.batch_size))
    print_floor(resnet50, speed=best)
    if options.timm is None:
        log("no timm checkout, name its benchmark.py: --timm PATH")
    bench = StepBench(resnet50)
    stall = stall_ratio([bench.checkpoint_times() for _ in range(options.rounds)])
    loops = loop_speeds(resnet50)
    del bench
    small, graphs = StepBench(resnext110), StepBench(replace(resnext110, compile="graphs"))
    speeds = [(small.speed(), graphs.speed()) for _ in range(options.rounds)]
    best_small, best_graphs = (max(rounds) for rounds in zip(*speeds, strict=True))
    print_floor(resnext110, speed=max(best_small, best_graphs))
    print(f"gpu_resnet50 {best:.0f} per_s")
    print(f"gpu_resnext110 {best_small:.0f} per_s")
    print(f"gpu_resnext110_graphs {best_graphs:.0f} per_s")
    print(f"gpu_checkpoint_stall {stall:.3f} ratio")
    for name, speed in loops.items():
        print(f"gpu_loop_{name} {speed / best:.3f} ratio")
    if options.timm is not None:
        print(f"gpu_vs_timm {best / best_timm:.3f} ratio")
    if torch.cuda.device_count() > 1:
        print(f"gpu_overlap {overlap_gain(rounds=options.rounds, batch=options.batch_size // 2):.3f} ratio")
    return 0


def settings(network: str, shape: tuple[int, int, int], *, num_classes: int, batch: int) -> Any:
    """Return the settings of a run with torch.compile and bfloat16, the usual picks of --fast auto."""
    from trainer.config.settings import TrainConfig

    return TrainConfig(
        network=network,
        dataset="synthetic",
        image_shape=shape,
        num_classes=num_classes,
        batch_size_per_node=batch,
        num_epochs=2,
        dtype="bfloat16",
        compile="1",
        lr=0.01,
        resume="never",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointTimes:
    """Times of one round, in seconds."""

    steps: float
    """Time of the steps alone."""
    steps_with_copy: float
    """Time of the same steps during the copy for a checkpoint."""
    save: float
    """Time of a torch.save of the same state to memory."""


def stall_ratio(rounds: Sequence[CheckpointTimes]) -> float:
    """Return the delay of the steps by the copy, divided by the save; each time is the best of all rounds.

    The smallest difference within a round would select noise that had slowed down only the steps alone.
    """
    steps, steps_with_copy = min(times.steps for times in rounds), min(times.steps_with_copy for times in rounds)
    return (steps_with_copy - steps) / min(times.save for times in rounds)


class StepBench:
    """Times training steps on one batch that is already on the GPU."""

    def __init__(self, config: Any) -> None:
        import torch

        from trainer.torch_backend.device_loader import DeviceBatch

        self._backend = new_backend(config)
        self._batch: int = config.batch_size_per_node
        images = torch.randn((self._batch, *config.input_shape), device="cuda").to(memory_format=torch.channels_last)
        targets = torch.randint(config.resolved_num_classes, (self._batch,), device="cuda")
        self._device_batch = DeviceBatch(images=images, targets=targets)
        self._labels = targets.cpu().numpy()
        self._run(WARM_UP)

    def speed(self) -> float:
        """Return images/s."""
        return self._batch * STEPS / timed(lambda: self._run(STEPS))

    def checkpoint_times(self) -> CheckpointTimes:
        """Time the steps with and without a concurrent checkpoint copy, and a torch.save of the same state."""
        import torch

        def run_with_copy() -> None:
            copying = threading.Thread(target=self._backend.snapshot())
            copying.start()
            self._run(STEPS)
            copying.join()

        steps, steps_with_copy = timed(lambda: self._run(STEPS)), timed(run_with_copy)
        state = self._backend.state()
        tensors = [torch.from_numpy(array).cuda() for array in (*state.weights.values(), *state.optimizer.values())]
        save = timed(lambda: torch.save(tensors, io.BytesIO()))
        return CheckpointTimes(steps=steps, steps_with_copy=steps_with_copy, save=save)

    def _run(self, steps: int) -> None:
        for _ in range(steps):
            self._backend.forward_backward(self._device_batch, self._labels)
            self._backend.optimizer_step(num_samples=self._batch)


def timed(work: Callable[[], None]) -> float:
    """Return the seconds until the GPU has completed the work."""
    import torch

    torch.cuda.synchronize()
    started = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - started


def new_backend(config: Any) -> Any:
    from trainer.distributed.data_parallel import DataParallelGroup
    from trainer.distributed.world import World
    from trainer.torch_backend.create_backend import create_backend

    return create_backend(config, world=World(), dp=DataParallelGroup(), learning_rate=0.01)


def loop_speeds(config: Any) -> dict[str, float]:
    """Return images/s of the training loop by where its dataset is."""
    from benchmarks.train.input_jpeg import make_photographs
    from trainer.data.images.folder import load_folder

    in_memory = random_data(config)
    with tempfile.TemporaryDirectory() as directory:
        make_photographs(Path(directory), count=JPEG_STEPS * config.batch_size_per_node)
        files = load_folder(Path(directory), config.input_shape)
        return {
            "resident": loop_speed(replace(config, augment="standard"), in_memory, share=0.25),
            "memory": loop_speed(replace(config, augment="standard"), in_memory, share=0.0),
            "jpeg": loop_speed(replace(config, augment="standard", dataset="folder"), files, share=0.0),
        }


def random_data(config: Any) -> Any:
    """Return a dataset of random pixels in the host's memory."""
    from trainer.data.dataset import Dataset, InMemory

    generator = np.random.default_rng(0)
    count = STEPS * config.batch_size_per_node
    train_part, validation = (
        InMemory(
            pixels=generator.integers(256, size=(size, *config.input_shape), dtype=np.uint8),
            labels=generator.integers(config.resolved_num_classes, size=size),
        )
        for size in (count, config.batch_size_per_node)
    )
    return Dataset(
        train=train_part,
        validation=validation,
        image_shape=config.input_shape,
        num_classes=config.resolved_num_classes,
        std=(64.0,),
    )


def loop_speed(config: Any, data: Any, *, share: float) -> float:
    """Return images/s of the training loop in its second epoch; the dataset may take ``share`` of the GPU's memory."""
    from trainer.checkpoint.manager import CheckpointManager
    from trainer.distributed.data_parallel import DataParallelGroup
    from trainer.train import Trainer

    with patch("trainer.torch_backend.device_loader.RESIDENT_SHARE", share):
        results = Trainer(
            backend=new_backend(config),
            data=data,
            config=config,
            dp=DataParallelGroup(),
            global_batch_size=config.batch_size_per_node,
            checkpoints=CheckpointManager(config, dp=DataParallelGroup(), store=None),
        ).train()
    return float(results[-1].speed)


def print_floor(config: Any, *, speed: float) -> None:
    """Print the shortest possible time of a step, given the GPU's limits, and the measured one."""
    import torch

    from benchmarks.gpu._roofline import BANDWIDTHS, work_of_step
    from trainer.metrics.flops import find_peak
    from trainer.models import build

    model = build(config.network, num_classes=config.resolved_num_classes, image_shape=config.input_shape)
    batch, device = config.batch_size_per_node, torch.cuda.get_device_name()
    work = work_of_step(model, (batch, *config.input_shape), width=2)
    workload = f"{config.network}: {work.operations / batch:.3g} operations, {work.bytes / batch:.3g} bytes per image"
    peak, bandwidth = find_peak(device, torch.bfloat16), BANDWIDTHS.get(device)
    if peak is None or bandwidth is None:
        log(f"{workload}; floor unknown, no datasheet of {device}")
        return
    floor = work.floor(operations_s=peak[0], bytes_s=bandwidth)
    floor_ms, step_ms = 1000 * floor, 1000 * batch / speed
    log(f"{workload}; floor {floor_ms:.2f} ms per step ({batch / floor:.0f}/s), measured {step_ms:.2f} ms")


def log(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
