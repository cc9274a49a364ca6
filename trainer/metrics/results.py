"""Compute results for the log: speed, accuracy, and a digest of the weights."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainer.metrics.step_timer import Phases

Clock = Callable[[], float]
NO_PHASES = Phases()


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochResult:
    """Result of one epoch on all ranks."""

    samples: int
    """Samples trained on in ``seconds``; fewer than the epoch has if it was resumed."""
    loss: float
    """Mean loss over the samples."""
    train_accuracy: float
    validation_accuracy: float
    seconds: float
    """Training time in seconds, without validation."""
    mfu: float | None = None
    """Model FLOPs utilization, from 0 to 1; see metrics/flops.py. None if unknown."""
    phases: Phases = NO_PHASES
    """Seconds of each phase, mean over the ranks."""
    slowest: str | None = None
    """Description of a rank that the others waited for, if one stands out."""

    @property
    def speed(self) -> float:
        """Return the samples per second of all ranks together."""
        return self.samples / self.seconds

    @property
    def metrics(self) -> dict[str, float]:
        """Return the result by name, for the metric writers."""
        return {
            "train/accuracy": self.train_accuracy,
            "train/loss": self.loss,
            "validation/accuracy": self.validation_accuracy,
            "speed/all_ranks": self.speed,
            **({} if self.mfu is None else {"speed/mfu": self.mfu}),
            **{f"seconds/{phase}": seconds for phase, seconds in self.phases._asdict().items()},
        }

    def __str__(self) -> str:
        utilization = "" if self.mfu is None else f" model FLOP utilization={self.mfu:.1%}"
        return (
            f"Train-accuracy={self.train_accuracy:.6f} Validation-accuracy={self.validation_accuracy:.6f} "
            f"loss={self.loss:.6f} Time cost={self.seconds:.3f} Speed={self.speed:.2f} samples/sec (all workers)"
            f"{utilization}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """Speed and accuracy of one rank over its last batches."""

    speed: float
    """Samples per second."""
    accuracy: float

    @property
    def metrics(self) -> dict[str, float]:
        """Return the pace by name, for the metric writers of rank 0."""
        return {"train/accuracy": self.accuracy, "speed/rank_0": self.speed}

    def __str__(self) -> str:
        return f"Speed: {self.speed:.2f} samples/sec accuracy={self.accuracy:.4f}"


class Speedometer:
    """Measures this rank's pace over every ``every`` batches, like the class of the same name in MXNet."""

    def __init__(self, *, every: int, clock: Clock) -> None:
        self._every = every
        self._clock = clock
        self._restart()

    @property
    def is_due(self) -> bool:
        """Return True if the next batch completes an interval of ``every`` batches."""
        return self._batches + 1 >= self._every

    def add(self, *, samples: int, correct: int) -> Pace | None:
        """Count a batch; return the pace when due."""
        self._batches += 1
        self._samples += samples
        self._correct += correct
        if self._batches < self._every:
            return None
        speed = self._samples / (self._clock() - self._started)
        accuracy = self._correct / max(1, self._samples)
        self._restart()
        return Pace(speed=speed, accuracy=accuracy)

    def _restart(self) -> None:
        self._started = self._clock()
        self._batches = self._samples = self._correct = 0


def digest(weights: Mapping[str, NDArray[np.generic]]) -> str:
    """Return a hash of the weights, which changes with every bit."""
    whole = hashlib.sha256()
    for name, value in weights.items():
        whole.update(name.encode())
        whole.update(value.tobytes())
    return f"sha256:{whole.hexdigest()[:16]}"


def summarize(results: Sequence[EpochResult]) -> str:
    """Return a run's final accuracy and mean speed as text."""
    speed = sum(result.samples for result in results) / sum(result.seconds for result in results)
    return f"Validation-accuracy={results[-1].validation_accuracy:.6f} images/s={speed:.1f}"
