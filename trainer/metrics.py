"""What the log shows of a training: speed, accuracy, and a digest of the weights."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

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
    utilisation: float | None = None
    """Of what the devices could do at most, from 0 to 1; see trainer.engines.flops. None where that is not known."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each phase, mean over the ranks."""
    slowest: str | None = None
    """Which rank the others waited for, if one stands out."""

    @property
    def speed(self) -> float:
        """Samples a second, all ranks together."""
        return self.samples / self.seconds

    @property
    def figures(self) -> dict[str, float]:
        """By name, for records."""
        return {
            "train/accuracy": self.train_accuracy,
            "train/loss": self.loss,
            "validation/accuracy": self.validation_accuracy,
            "speed/all_ranks": self.speed,
            **({} if self.utilisation is None else {"speed/model_flop_utilisation": self.utilisation}),
            **{f"seconds/{phase}": seconds for phase, seconds in self.phases.items()},
        }

    def __str__(self) -> str:
        utilisation = "" if self.utilisation is None else f" model FLOP utilisation={self.utilisation:.1%}"
        return (
            f"Train-accuracy={self.train_accuracy:.6f} Validation-accuracy={self.validation_accuracy:.6f} "
            f"loss={self.loss:.6f} Time cost={self.seconds:.3f} Speed={self.speed:.2f} samples/sec (all workers)"
            f"{utilisation}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """How fast and how well one rank did of late."""

    speed: float
    """Samples a second."""
    accuracy: float

    def __str__(self) -> str:
        return f"Speed: {self.speed:.2f} samples/sec accuracy={self.accuracy:.4f}"


class Speedometer:
    """Says every ``every`` batches how fast and how well this rank did since it last said so."""

    def __init__(self, *, every: int, clock: Clock) -> None:
        self._every = every
        self._clock = clock
        self._restart()

    @property
    def due(self) -> bool:
        """Whether it will speak after the next batch."""
        return self._batches + 1 >= self._every

    def add(self, *, samples: int, correct: int) -> Pace | None:
        """Count a batch; return what to say when it is due."""
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


def digest(weights: Weights) -> str:
    """Return a short text that differs whenever one bit of the weights does."""
    whole = hashlib.sha256()
    for name, value in weights.items():
        whole.update(name.encode())
        whole.update(value.tobytes())
    return f"sha256:{whole.hexdigest()[:16]}"
