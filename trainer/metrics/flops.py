"""Count the operations of a network and look up the peak of a device, for the model FLOPs utilization.

Chowdhery et al. (2022), "PaLM", appendix B: operations that forward and backward pass require, independent of what was
really computed, divided by the device's peak in its data type.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from trainer.models import ImageShape

log = logging.getLogger(__name__)

TERA: Final = 1e12
SAMPLES: Final = 2
"""Batch size for counting; BatchNorm does not train on a single value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PeakFlops:
    """Peak speed of a GPU in 10^12 operations per second, counting multiplication and addition separately."""

    float32: float | None = None
    """In float32, without tensor cores."""
    tf32: float | None = None
    """In float32 with TF32 tensor cores, on dense matrices; None for a GPU without them."""
    half: float | None = None
    """In float16 with tensor cores, on dense matrices."""
    bfloat16: bool = True
    """True if bfloat16 is as fast."""
    source: str
    """Title of the datasheet."""


PEAK_FLOPS: Final[Mapping[str, PeakFlops]] = {
    r"Tesla V100-SXM2-(16|32)GB": PeakFlops(
        float32=15.7, half=125, bfloat16=False, source="NVIDIA V100 Tensor Core GPU Datasheet"
    ),
    "Tesla T4": PeakFlops(float32=8.1, half=65, bfloat16=False, source="NVIDIA T4 Tensor Core GPU Datasheet"),
    r"(NVIDIA )?A100-SXM4-(40|80)GB": PeakFlops(
        float32=19.5, tf32=156, half=312, source="NVIDIA A100 Tensor Core GPU Datasheet"
    ),
    "NVIDIA A10G": PeakFlops(float32=35, tf32=35, half=70, source="NVIDIA AWS A10G DataSheet"),
    "NVIDIA L4": PeakFlops(float32=30.3, tf32=60, half=121, source="NVIDIA L4 Tensor Core GPU Datasheet"),
    "NVIDIA L40S": PeakFlops(float32=91.6, tf32=183, half=362, source="NVIDIA L40S Datasheet"),
    "NVIDIA H100 80GB HBM3": PeakFlops(
        float32=67, tf32=494, half=989, source="NVIDIA H100 Tensor Core GPU Datasheet, column SXM"
    ),
    "NVIDIA H200": PeakFlops(
        float32=67, tf32=494, half=989, source="NVIDIA H200 Tensor Core GPU Datasheet, column SXM"
    ),
    "NVIDIA B200": PeakFlops(tf32=1125, half=2250, source="NVIDIA HGX Platform, an eighth of HGX B200"),
}
"""Patterns of the complete name from torch.cuda.get_device_name(); a MIG partition has another name.

Datasheets since A100 list twice these numbers for tensor cores, for sparse matrices.
"""


def count_flops(model: nn.Module, image_shape: ImageShape) -> float | None:
    """Return the operations of forward and backward pass for one sample; None if they cannot be counted.

    Run both without data (device meta), so that neither weights nor random numbers change.
    """
    tensors = dict([*model.named_parameters(), *model.named_buffers()])
    state = {name: value.detach().to("meta").requires_grad_(value.requires_grad) for name, value in tensors.items()}
    images = torch.empty((SAMPLES, *image_shape), device="meta")
    labels = torch.empty(SAMPLES, dtype=torch.int64, device="meta")
    try:
        with FlopCounterMode(display=False) as counter:
            loss = cross_entropy(functional_call(model, state, (images,)), labels)
            torch.autograd.grad(loss, [value for value in state.values() if value.requires_grad], allow_unused=True)
    # A user's network may read values, which the meta device lacks, or use an operation without a formula.
    except (RuntimeError, NotImplementedError, TypeError, ValueError, AttributeError) as error:
        log.info("cannot count the network's FLOPs: %s", str(error).partition("\n")[0])
        return None
    return float(counter.get_total_flops()) / SAMPLES


def find_peak(device_name: str, dtype: torch.dtype, *, allow_tf32: bool = False) -> tuple[float, str] | None:
    """Return a GPU's peak operations per second in this data type, and the source; None if unknown.

    With ``allow_tf32`` float32 runs on TF32 tensor cores if the GPU has them.
    """
    for pattern, peak in PEAK_FLOPS.items():
        if re.fullmatch(pattern, device_name):
            known = {
                torch.float32: (peak.tf32 or peak.float32) if allow_tf32 else peak.float32,
                torch.float16: peak.half,
                torch.bfloat16: peak.half if peak.bfloat16 else None,
            }
            most = known.get(dtype)
            return None if most is None else (most * TERA, peak.source)
    return None


def find_peak_samples_per_s(flops: float | None, dtype: torch.dtype, *, device: torch.device) -> float | None:
    """Return the device's peak in samples per second, of ``flops`` operations each; None if unknown."""
    if flops is None or device.type != "cuda":
        return None  # Datasheets of CPUs give no peak.
    name = torch.cuda.get_device_name(device)
    peak = find_peak(name, dtype, allow_tf32=torch.backends.cuda.matmul.allow_tf32)
    if peak is None:
        log.info("MFU unknown: no peak FLOP/s for %s in %s in PEAK_FLOPS", name, dtype)
        return None
    most, source = peak
    log.info("%.3g FLOP per sample, peak %.3g FLOP/s (%s)", flops, most, source)
    return most / flops
