"""What PyTorch raises in a step, as one line that says what to do."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

from trainer.data import Images
from trainer.engines.delivery import Placed
from trainer.errors import TrainerError

log = logging.getLogger(__name__)

COMPILERS: Final = ("torch._dynamo", "torch._inductor")
"""Where torch.compile's errors come from; to import them would take seconds."""

NOT_DETERMINISTIC: Final = "does not have a deterministic implementation"
"""Where torch.use_deterministic_algorithms() refuses an operation."""


@contextmanager
def report_failed_step(images: Images | Placed) -> Iterator[None]:
    """Turn what a step on these images fails with into one line, where that is enough."""
    samples, *shape = (images.images if isinstance(images, Placed) else images).shape
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
        if not type(error).__module__.startswith(COMPILERS):
            # The traceback, which shows where in the network, does not show what it was given.
            log.critical("a step fails on images of %s (channels, height, width)", ",".join(map(str, shape)))
            raise
        # Its first line only says which part has failed.
        said = " ".join(line.strip() for line in str(error).strip().splitlines()[:2])
        raise TrainerError(f"torch.compile failed, try --compile 0: {said}") from error


def first_line(error: Exception) -> str:
    """Return what an error says, without the advice below it."""
    return str(error).strip().partition("\n")[0]
