"""Find the fastest compute mode by timing a few steps of each: --fast auto.

Try the choices one by one, and keep each that saves time: data type, channels_last, torch.compile, CUDA graphs. They
run on copies of the network and on synthetic images, so that the run starts unchanged. The checkpoint stores the mode,
and a resumed run keeps it. All ranks measure at the same time, including the all-reduce of every step; the slowest
rank's time counts, so that all pick the same mode.
"""

import copy
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import nn

from trainer.backend import Backend
from trainer.config.choices import COMPILE_LEVELS
from trainer.config.settings import TrainConfig
from trainer.distributed.data_parallel import DataParallelGroup
from trainer.distributed.reduce.reducers import Communicator
from trainer.distributed.rendezvous import RENDEZVOUS_TIMEOUT
from trainer.distributed.world import World
from trainer.errors import TrainerError, first_line
from trainer.models import ImageShape
from trainer.torch_backend.backend import StepSettings, TorchBackend
from trainer.torch_backend.compute_mode import ComputeMode, has_convolutions
from trainer.torch_backend.device_loader import DeviceBatch

log = logging.getLogger(__name__)

MAX_TIME_RATIO: Final = 0.97
"""Largest step time, relative to the best so far, that keeps a choice; each choice rounds differently."""
WARMUP_STEPS: Final = 3
TIMED_STEPS: Final = 5
TIMINGS: Final = 3
"""Timings of each mode. The shortest counts: other work on the machine only adds time."""

BUDGET_S: Final = 240.0
"""Seconds after which no further choice is tried; less than the ranks' timeout in a step."""

Measure = Callable[[ComputeMode], float]
"""Function that returns the seconds of a step; infinite if the mode does not work here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
    """Values to try for each choice; a single value is no choice."""

    dtypes: Sequence[str]
    channels_last: Sequence[bool]
    compile_modes: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Autotuner:
    """Measures steps of this run's network. All ranks call it at the same time."""

    config: TrainConfig
    settings: StepSettings
    configured: ComputeMode
    model: nn.Module
    """A copy of the network, because a backend moves and changes its own."""
    device: torch.device
    world: World
    dp: DataParallelGroup
    communicator: Communicator

    def pick_mode(self) -> ComputeMode:
        """Return the fastest mode, the same on all ranks."""
        started = time.monotonic()
        return pick_mode(
            find_candidates(self.config, self.configured, self.model, device=self.device),
            self._measure_on_all_ranks,
            elapsed_s=lambda: self._largest(time.monotonic() - started),
            level=logging.DEBUG if self.world.rank else logging.INFO,
        )

    def _measure_on_all_ranks(self, mode: ComputeMode) -> float:
        """Return the seconds of a step on the slowest rank; infinite if the mode fails on one."""
        if self.communicator.is_distributed:
            # Try it without communication first: if one rank failed in the middle of a step, the others would wait.
            local_settings = replace(self.settings, ddp=False, compression="none")
            alone = Communicator(world_size=1)
            seconds = self._measure(mode, local_settings, dp=DataParallelGroup(), communicator=alone, timings=1)
            if math.isinf(self._largest(seconds)):
                return math.inf
        return self._largest(
            self._measure(mode, self.settings, dp=self.dp, communicator=self.communicator, timings=TIMINGS)
        )

    def _measure(
        self,
        mode: ComputeMode,
        settings: StepSettings,
        *,
        dp: DataParallelGroup,
        communicator: Communicator,
        timings: int,
    ) -> float:
        """Return the seconds of a step on this rank; infinite if the mode fails."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # memory of the previous mode
        samples = max(1, self.config.samples_per_node_per_step // self.world.local_world_size)
        try:
            model = copy.deepcopy(self.model)
            backend = TorchBackend(model, settings, device=self.device, dp=dp, communicator=communicator, mode=mode)
            step = _make_step(backend, mode, samples=samples, image_shape=self.config.input_shape, device=self.device)
            for _ in range(WARMUP_STEPS):
                step()
            return min(_mean_step_seconds(step, self.device) for _ in range(timings))
        except (TrainerError, RuntimeError) as error:
            log.info("%s does not work here: %s", mode, first_line(error))
            return math.inf
        finally:
            # The next mode may take a rank as long as its start.
            communicator.set_timeout(RENDEZVOUS_TIMEOUT)
            if mode.compile_mode == "graphs":
                # CUDA graphs keep their memory as long as the compiler refers to them.
                torch.compiler.reset()

    def _largest(self, seconds: float) -> float:
        return self.communicator.all_reduce_max(seconds, device=self.device)


def find_candidates(
    config: TrainConfig, configured: ComputeMode, model: nn.Module, *, device: torch.device
) -> Candidates:
    """Return the choices that the settings leave open: all with --fast auto, torch.compile with --compile auto."""
    fast, gpu = config.fast == "auto", device.type == "cuda"
    dtypes = [configured.dtype]
    if fast and config.dtype is None:
        # bfloat16 first: it needs no loss scale. On CPUs torch has no fast float16.
        bfloat16 = not gpu or torch.cuda.is_bf16_supported(including_emulation=False)
        dtypes = ["float32", *["bfloat16"] * bfloat16, *["float16"] * gpu]
    # On CPUs compiling takes a minute and may need a missing compiler, so try it only on request.
    can_compile = not (config.sync_bn or config.deterministic)
    compiles = config.compile == "auto" or (fast and gpu and config.compile is None and can_compile)
    return Candidates(
        dtypes=dtypes,
        channels_last=[False, True] if fast and has_convolutions(model) else [configured.channels_last],
        compile_modes=COMPILE_LEVELS[: 3 if gpu else 2] if compiles else [configured.compile_mode],
    )


def pick_mode(
    candidates: Candidates, measure: Measure, *, elapsed_s: Callable[[], float], level: int = logging.INFO
) -> ComputeMode:
    """Return the fastest mode, and log the measurements. ``elapsed_s``: seconds since all ranks began."""
    best = ComputeMode(
        dtype=candidates.dtypes[0], channels_last=candidates.channels_last[0], compile_mode=candidates.compile_modes[0]
    )
    best_s = measure(best)
    measured = [describe(best, best_s)]
    changes = (
        *({"dtype": dtype} for dtype in candidates.dtypes[1:]),
        *({"channels_last": value} for value in candidates.channels_last[1:]),
        *({"compile_mode": value} for value in candidates.compile_modes[1:]),
    )
    for number, change in enumerate(changes):
        if elapsed_s() > BUDGET_S:
            log.log(level, "measured for %.0f s, %d choices are left untried", BUDGET_S, len(changes) - number)
            break
        mode = replace(best, **change)  # type: ignore[arg-type]  # fields by name, of several types
        step_s = measure(mode)
        measured.append(describe(mode, step_s))
        if step_s < MAX_TIME_RATIO * best_s:
            best, best_s = mode, step_s
    log.log(level, "picked %s, a step took: %s", best, "; ".join(measured))
    return best


def describe(mode: ComputeMode, seconds: float) -> str:
    """Describe how long a step takes."""
    return f"{mode} {1000 * seconds:.2f} ms" if math.isfinite(seconds) else f"{mode} fails"


def _make_step(
    backend: Backend, mode: ComputeMode, *, samples: int, image_shape: ImageShape, device: torch.device
) -> Callable[[], None]:
    generator = torch.Generator().manual_seed(0)
    layout = torch.channels_last if mode.channels_last else torch.contiguous_format
    images = torch.randn((samples, *image_shape), generator=generator).to(device, memory_format=layout)
    targets = torch.zeros(samples, dtype=torch.int64)
    batch = DeviceBatch(images=images, targets=targets.to(device))

    def step() -> None:
        backend.forward_backward(batch, targets.numpy())
        backend.optimizer_step(num_samples=samples)

    return step


def _mean_step_seconds(step: Callable[[], None], device: torch.device) -> float:
    _synchronize(device)
    started = time.perf_counter()
    for _ in range(TIMED_STEPS):
        step()
    _synchronize(device)
    return (time.perf_counter() - started) / TIMED_STEPS


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
