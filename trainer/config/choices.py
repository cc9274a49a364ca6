"""List the allowed values of settings, and map settings to options."""

from collections.abc import Mapping
from typing import Final

from trainer.errors import UsageError

KV_STORES_OF: Final = {
    "torch": ("device", "local", "dist_sync", "dist_device_sync"),
    "mxnet": ("device", "local", "dist_sync", "dist_device_sync", "dist_async"),
    "horovod": ("horovod",),
}
"""kv-stores of each framework by MXNet's names, its default first."""
FRAMEWORKS: Final = tuple(KV_STORES_OF)
KV_STORES: Final = ("local", "device", "dist_sync", "dist_device_sync", "dist_async", "horovod")
RESUME: Final = ("auto", "never")
DTYPES: Final = ("float32", "bfloat16", "float16")
COMPRESSION_TYPES: Final = ("none", "fp16", "bf16")
COMPILE_LEVELS: Final = ("0", "1", "graphs")
"""Modes of torch.compile: no compilation; default mode; CUDA graphs (reduce-overhead)."""
COMPILE_CHOICES: Final = (*COMPILE_LEVELS, "auto")
FAST_CHOICES: Final = ("off", "auto")
REDUCTIONS: Final = ("auto", "ddp", "buckets", "ring")
AUGMENTATIONS: Final = ("auto", "none", "standard")
LR_SCHEDULES: Final = ("step", "cosine")
LAST_BATCHES: Final = ("drop", "keep")
TORCH_ONLY_SETTINGS: Final = (
    *("sync_bn", "dtype", "gradient_accumulation", "gradient_compression", "compile", "fast", "deterministic"),
    *("profile_steps", "reduction", "label_smoothing"),
)
"""Settings that only --framework torch supports."""
OPTIONS: Final[Mapping[str, str]] = {
    "batch_size_per_node": "--batch-size",
    "momentum": "--mom",
    "weight_decay": "--wd",
    "gradient_compression": "--gc-type",
    "resolved_dtype": "--dtype",
    "augmentations": "--augment",
    "input_shape": "--image-shape",
}
"""Options whose names differ from their settings."""


def option_name(name: str) -> str:
    """Return the option of a setting."""
    return OPTIONS.get(name) or f"--{name.replace('_', '-')}"


def format_value(value: object) -> str:
    """Return a setting's value in the form of the command line; ``none`` for None."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(int(value))
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise UsageError unless the setting has one of the allowed values."""
    if value not in allowed:
        raise UsageError(f"unknown {option_name(name)} {value!r}, must be one of: {', '.join(allowed)}")


def check_kv_store(name: str, *, framework: str) -> None:
    """Raise UsageError for an unknown kv-store, which MXNet itself would treat as a local kv-store."""
    check_choice("kv_store", name, KV_STORES)
    if name not in KV_STORES_OF[framework]:
        others = " or ".join(f"--framework {other}" for other in FRAMEWORKS if name in KV_STORES_OF[other])
        raise UsageError(
            f"--kv-store {name} is not supported by --framework {framework}, "
            f"which supports {', '.join(KV_STORES_OF[framework])}; use it with {others}"
        )
