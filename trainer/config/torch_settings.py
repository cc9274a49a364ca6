"""Define and check the settings of --framework torch that decide its speed and how it sums gradients."""

from dataclasses import dataclass

from trainer.config.choices import COMPILE_CHOICES, COMPRESSION_TYPES, DTYPES, FAST_CHOICES, REDUCTIONS, check_choice
from trainer.errors import UsageError


# Without slots, because TrainConfig has two such bases and Python allows slots in only one base.
@dataclass(frozen=True, kw_only=True)
class TorchSettings:
    """Settings that only --framework torch has."""

    dtype: str | None = None
    """Data type of the computation, one of DTYPES. Default: what ``fast`` picks, or float32, with TF32 on GPUs."""
    gradient_accumulation: int = 1
    """Micro-batches whose gradients are accumulated in one step."""
    gradient_compression: str = "none"
    """Data type of gradients on the network, one of COMPRESSION_TYPES."""
    compile: str | None = None
    """Mode of torch.compile, one of COMPILE_CHOICES. Default: 0, or what ``fast`` picks."""
    fast: str = "off"
    """Measure and pick the fastest compute mode, one of FAST_CHOICES. Default: off, float32."""
    deterministic: bool = False
    """Make GPUs compute the same bits every time, as CPUs do. Default: whatever is fastest."""
    reduction: str = "auto"
    """Reducer of the gradients, one of REDUCTIONS. Default: between GPUs DistributedDataParallel, or built-in buckets
    with deterministic or gradient_compression; between CPUs a ring."""

    @property
    def resolved_dtype(self) -> str:
        """Return the data type, or "auto" if it will be measured."""
        return self.dtype or ("auto" if self.fast == "auto" else "float32")

    @property
    def needs_autotune(self) -> bool:
        """Return True if the ranks must measure steps to pick a compute mode."""
        return self.fast == "auto" or self.compile == "auto"

    def check_torch_settings(self, *, sync_bn: bool) -> None:
        """Raise UsageError unless these settings are valid together."""
        if self.dtype is not None:
            check_choice("dtype", self.dtype, DTYPES)
        check_choice("gradient_compression", self.gradient_compression, COMPRESSION_TYPES)
        if self.compile is not None:
            check_choice("compile", self.compile, COMPILE_CHOICES)
        check_choice("fast", self.fast, FAST_CHOICES)
        compiles = self.compile not in (None, "0")
        if compiles and sync_bn:
            raise UsageError(
                f"--compile must be 0 with --sync-bn, whose sums torch.compile cannot see, got {self.compile}"
            )
        if compiles and self.deterministic:
            why = "because compilation may choose other kernels"
            raise UsageError(f"--compile must be 0 with --deterministic, {why}, got {self.compile}")
        check_choice("reduction", self.reduction, REDUCTIONS)
        if self.reduction == "ddp" and (self.deterministic or self.gradient_compression != "none"):
            other = "--deterministic, because DDP rebuilds its buckets" if self.deterministic else "--gc-type"
            raise UsageError(f"--reduction ddp cannot be combined with {other}: use auto or buckets")
