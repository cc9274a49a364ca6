"""What a setting may be called, how a user writes it, and which engine knows what."""

from collections.abc import Mapping
from typing import Final

from trainer.errors import UsageError

KV_STORES_OF: Final = {
    "torch": ("device", "local", "dist_sync", "dist_device_sync"),
    "mxnet": ("device", "local", "dist_sync", "dist_device_sync", "dist_async"),
    "horovod": ("horovod",),
}
"""Each engine's kv-stores by MXNet's names, its default first."""
ENGINES: Final = tuple(KV_STORES_OF)
KV_STORES: Final = ("local", "device", "dist_sync", "dist_device_sync", "dist_async", "horovod")
RESUME: Final = ("auto", "never")
DTYPES: Final = ("float32", "bfloat16", "float16")
GC_TYPES: Final = ("none", "fp16", "bf16")
COMPILED: Final = ("0", "1", "graphs")
"""How far torch.compile goes: not at all, a network's own operations, their launches too (CUDA graphs)."""
COMPILE: Final = (*COMPILED, "auto")
FAST: Final = ("off", "auto")
FOR_TORCH: Final = (
    *("sync_bn", "dtype", "gradient_accumulation", "gc_type", "compile", "fast", "deterministic", "profile_steps"),
)
"""Settings that the other engines do not have."""
OPTIONS: Final[Mapping[str, str]] = {
    "batch_size_per_machine": "--batch-size",
    "data_type": "--dtype",
    "input_shape": "--image-shape",
}
"""Of settings that are not called as their options."""


def option(name: str) -> str:
    """Return the option that a user writes for a setting."""
    return OPTIONS.get(name) or f"--{name.replace('_', '-')}"


def shown(value: object) -> str:
    """Return a setting's value as a user writes it, ``none`` where he writes nothing."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(int(value))
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"unknown {option(name)} {value!r}, must be one of: {', '.join(allowed)}")


def check_kv_store(name: str, *, engine: str) -> None:
    """MXNet itself takes an unknown name for a local store."""
    check_choice("kv_store", name, KV_STORES)
    if name not in KV_STORES_OF[engine]:
        others = " or ".join(f"--engine {other}" for other in ENGINES if name in KV_STORES_OF[other])
        raise UsageError(
            f"--kv-store {name} is not of --engine {engine}, which has {', '.join(KV_STORES_OF[engine])}; "
            f"it takes {others}"
        )
