"""--fast auto: the quickest way to compute a step, found by computing a few.

One thing after the other, each kept if it pays: the data type, channels_last, torch.compile, CUDA graphs. Networks of
their own are measured, and made-up images, so that the training begins as it would have. What was picked is in the
checkpoint: a training that goes on goes on with it.
"""

import copy
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import torch
from torch import nn

from trainer.choices import COMPILED
from trainer.config import TrainConfig
from trainer.engines import Engine, State
from trainer.engines.delivery import Placed
from trainer.engines.failures import first_line
from trainer.engines.method import DTYPES, Method, has_convolutions
from trainer.errors import TrainerError
from trainer.models import ImageShape
from trainer.ranks import Ranks

log = logging.getLogger(__name__)

METHOD: Final = "method"
"""Its name in a checkpoint."""
PAYS: Final = 0.97
"""Of the time before: what saves less is not worth another rounding."""
WARM_UP: Final = 3
STEPS: Final = 5
ROUNDS: Final = 3
"""The shortest counts: whatever else the machine does only adds to it."""

Measure = Callable[[Method], float]
"""Seconds of a step; infinite where the method does not work here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
    """What is left to choose; one of each is no choice."""

    dtypes: Sequence[str]
    channels_last: Sequence[bool]
    compiled: Sequence[str]


def chooser(
    config: TrainConfig,
    given: Method,
    model: nn.Module,
    *,
    make: Callable[..., Engine],
    ranks: Ranks,
    device: torch.device,
) -> Callable[[], Method] | None:
    """Return what picks the method; None where nothing is to be measured. ``make`` makes an engine of a network."""
    if not config.measures:
        return None
    # The engine moves and changes the network itself.
    untouched = copy.deepcopy(model)
    measure = partial(
        measure_step,
        make=lambda method: make(copy.deepcopy(untouched), method=method),
        samples=max(1, config.samples_per_step // ranks.local_world_size),
        image_shape=config.input_shape,
        device=device,
    )
    return partial(pick, candidates_of(config, given, model, device=device), measure)


def candidates_of(config: TrainConfig, given: Method, model: nn.Module, *, device: torch.device) -> Candidates:
    """Return what the settings leave open: all of it with --fast auto, torch.compile with --compile auto."""
    fast, gpu = config.fast == "auto", device.type == "cuda"
    dtypes = [given.dtype]
    if fast and config.dtype is None:
        # Where both are as quick, bfloat16, which needs no scale. On CPUs torch has no quick float16.
        bfloat16 = not gpu or torch.cuda.is_bf16_supported(including_emulation=False)
        dtypes = ["float32", *["bfloat16"] * bfloat16, *["float16"] * gpu]
    # On CPUs it takes a minute and may need a compiler that is not there: not unasked.
    possible = not (config.sync_bn or config.deterministic)
    compiles = config.compile == "auto" or (fast and gpu and config.compile is None and possible)
    return Candidates(
        dtypes=dtypes,
        channels_last=[False, True] if fast and has_convolutions(model) else [given.channels_last],
        compiled=COMPILED[: 3 if gpu else 2] if compiles else [given.compiled],
    )


def pick(candidates: Candidates, measure: Measure) -> Method:
    """Return the quickest method, and say so."""
    best = Method(
        dtype=candidates.dtypes[0], channels_last=candidates.channels_last[0], compiled=candidates.compiled[0]
    )
    seconds = measure(best)
    said = [describe(best, seconds)]
    others = (
        *({"dtype": dtype} for dtype in candidates.dtypes[1:]),
        *({"channels_last": value} for value in candidates.channels_last[1:]),
        *({"compiled": value} for value in candidates.compiled[1:]),
    )
    for change in others:
        method = replace(best, **change)  # type: ignore[arg-type]  # fields by name, of several types
        needed = measure(method)
        said.append(describe(method, needed))
        if needed < PAYS * seconds:
            best, seconds = method, needed
    log.info("picked %s, a step took: %s", best, "; ".join(said))
    return best


def describe(method: Method, seconds: float) -> str:
    """Say how long a step takes."""
    return f"{method} {1000 * seconds:.2f} ms" if math.isfinite(seconds) else f"{method} fails"


def measure_step(
    method: Method, *, make: Callable[[Method], Engine], samples: int, image_shape: ImageShape, device: torch.device
) -> float:
    """Return the seconds that a step of so many made-up samples takes on the device."""
    if device.type == "cuda":
        torch.cuda.empty_cache()  # of the method before
    try:
        step = _stepper(make(method), method, samples=samples, image_shape=image_shape, device=device)
        for _ in range(WARM_UP):
            step()
        return min(_seconds(step, device) for _ in range(ROUNDS)) / STEPS
    except (TrainerError, RuntimeError) as error:
        log.info("%s does not work here: %s", method, first_line(error))
        return math.inf
    finally:
        if method.compiled == "graphs":
            # They keep their memory as long as the compiler knows them.
            torch.compiler.reset()


def _stepper(
    engine: Engine, method: Method, *, samples: int, image_shape: ImageShape, device: torch.device
) -> Callable[[], None]:
    generator = torch.Generator().manual_seed(0)
    layout = torch.channels_last if method.channels_last else torch.contiguous_format
    images = torch.randn((samples, *image_shape), generator=generator).to(device, memory_format=layout)
    targets = torch.zeros(samples, dtype=torch.int64)
    batch = Placed(images=images, targets=targets.to(device))

    def step() -> None:
        engine.compute_gradients(batch, targets.numpy())
        engine.update(samples=samples)

    return step


def _seconds(step: Callable[[], None], device: torch.device) -> float:
    _wait_for(device)
    started = time.perf_counter()
    for _ in range(STEPS):
        step()
    _wait_for(device)
    return time.perf_counter() - started


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def encode(method: Method) -> list[int]:
    """Return the method as numbers, for the other ranks."""
    return [list(DTYPES).index(method.dtype), method.channels_last, COMPILED.index(method.compiled)]


def decode(numbers: Sequence[float]) -> Method:
    """Return the method that was encoded."""
    dtype, channels_last, compiled = (int(number) for number in numbers)
    return Method(dtype=list(DTYPES)[dtype], channels_last=bool(channels_last), compiled=COMPILED[compiled])


def method_of(state: State | None) -> Method | None:
    """Return the method that a checkpoint's training has gone by, if it was picked."""
    if state is None or METHOD not in state.optimizer:
        return None
    return decode(state.optimizer[METHOD].tolist())
