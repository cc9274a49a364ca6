"""What the log shows of a training: speed, accuracy, and a digest of the weights."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from trainer.engines import Weights

Clock = Callable[[], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochResult:
    """One epoch of all ranks."""

    samples: int
    """Trained on in these seconds: fewer than there are after an interruption."""
    loss: float
    """Mean over the samples."""
    train_accuracy: float
    validation_accuracy: float
    seconds: float
    """Training only, without the validation."""

    @property
    def speed(self) -> float:
        """Samples a second, all ranks together."""
        return self.samples / self.seconds

    def __str__(self) -> str:
        return (
            f"Train-accuracy={self.train_accuracy:.6f} Validation-accuracy={self.validation_accuracy:.6f} "
            f"loss={self.loss:.6f} Time cost={self.seconds:.3f} Speed={self.speed:.2f} samples/sec (all workers)"
        )


class Speedometer:
    """Says every ``every`` batches how fast and how well this rank did since it last said so."""

    def __init__(self, *, every: int, clock: Clock) -> None:
        self._every = every
        self._clock = clock
        self._restart()

    def add(self, *, samples: int, correct: int) -> str | None:
        """Count a batch; return the text for the log when it is due."""
        self._batches += 1
        self._samples += samples
        self._correct += correct
        if self._batches < self._every:
            return None
        speed = self._samples / (self._clock() - self._started)
        accuracy = self._correct / max(1, self._samples)
        self._restart()
        return f"Speed: {speed:.2f} samples/sec accuracy={accuracy:.4f}"

    def _restart(self) -> None:
        self._started = self._clock()
        self._batches = self._samples = self._correct = 0


def digest(weights: Weights) -> str:
    """Return a short text that differs whenever one bit of the weights does."""
    whole = hashlib.sha256()
    for name, value in weights.items():
        whole.update(name.encode())
        whole.update(value.tobytes())
    return f"sha256:{whole.hexdigest()[:16]}"
