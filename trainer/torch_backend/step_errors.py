"""Turn an error that PyTorch raises in a step into one line with advice."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

from trainer.data import Images
from trainer.distributed.reduce.gradient_buckets import GRADIENT_TWICE
from trainer.errors import TrainerError, first_line, shorten_torch_message
from trainer.torch_backend.device_loader import DeviceBatch, MicroBatches

log = logging.getLogger(__name__)

COMPILERS: Final = ("torch._dynamo", "torch._inductor")
"""Modules of torch.compile's errors; importing them would take seconds."""

NOT_DETERMINISTIC: Final = "does not have a deterministic implementation"
"""Part of the message when torch.use_deterministic_algorithms() refuses an operation."""
READY_TWICE: Final = "mark a variable ready only once"
"""Part of the message when DistributedDataParallel gets a parameter's gradient twice."""


@contextmanager
def report_failed_step(images: Images | DeviceBatch | MicroBatches, *, timeout_s: float) -> Iterator[None]:
    """Turn a known error of a step on these images into a TrainerError of one line.

    ``timeout_s``: seconds that another rank may be silent, for the message.
    """
    samples, *shape = (images.images if isinstance(images, DeviceBatch) else images).shape
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise TrainerError(
            f"the GPU's memory is too small for {samples} samples, try a smaller --batch-size, "
            f"with a greater --gradient-accumulation for the same step: {first_line(error)}"
        ) from error
    except RuntimeError as error:
        if NOT_DETERMINISTIC in str(error):
            raise TrainerError(f"--deterministic: {first_line(error).partition(',')[0]} on this GPU") from error
        if "/gloo/" in str(error) or isinstance(error, torch.distributed.DistError):
            # DistributedDataParallel sends gradients during the backward pass.
            raise TrainerError(
                f"the all-reduce failed: another rank ended, or was silent for {timeout_s:.0f} s: "
                f"{shorten_torch_message(str(error))}"
            ) from error
        if READY_TWICE in str(error):
            raise TrainerError(GRADIENT_TWICE) from error
        if not type(error).__module__.startswith(COMPILERS):
            # The traceback shows where in the network it failed, but not on which images.
            log.critical("a step fails on images of %s (channels, height, width)", ",".join(map(str, shape)))
            raise
        # The first line names the failed part, the second gives the reason.
        message = " ".join(line.strip() for line in str(error).strip().splitlines()[:2])
        raise TrainerError(f"torch.compile failed, try --compile 0: {message}") from error
