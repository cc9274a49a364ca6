"""Run timm's benchmark script, the comparison for the trainer's speed, from the package's checkout."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Final

TIMEOUT_S: Final = 600


def find_timm() -> Path | None:
    """Return timm's benchmark script if the package is installed from its checkout."""
    spec = importlib.util.find_spec("timm")
    script = Path(spec.origin).parents[1] / "benchmark.py" if spec and spec.origin else None
    return script if script and script.exists() else None


def timm_speed(script: Path, *, batch: int) -> float:
    """Return images/s of timm's script with its fastest settings."""
    shape = ("--model", "resnet50", "--img-size", "224", "--batch-size", str(batch), "--bench", "train")
    quick = ("--amp", "--amp-dtype", "bfloat16", "--channels-last", "--torchcompile", "inductor")
    output = subprocess.run(
        [sys.executable, str(script), *shape, *quick],
        check=True,
        timeout=TIMEOUT_S,
        capture_output=True,
        text=True,
    ).stdout
    printed = json.loads(output.partition("--result")[2])
    result = printed[0] if isinstance(printed, list) else printed
    if int(result["train_batch_size"]) != batch:
        raise SystemExit(f"error: timm used batch size {result['train_batch_size']}, want {batch}: try --batch-size")
    return float(result["train_samples_per_sec"])
