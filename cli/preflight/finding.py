"""What a check found: one line that says how bad it is, what it is and what to do."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One line of the report."""

    level: Level
    subject: str
    """What was checked, in two or three words."""
    sentence: str
    fix: str = ""
    """What to do, or nothing."""

    def __str__(self) -> str:
        told = f"{self.sentence}: {self.fix}" if self.fix else self.sentence
        return f"{self.level:<9}{self.subject:<16}{told}"


def ok(subject: str, sentence: str) -> Finding:
    """Nothing to do."""
    return Finding(level="ok", subject=subject, sentence=sentence)


def warning(subject: str, sentence: str, fix: str = "") -> Finding:
    """The deploy may succeed all the same."""
    return Finding(level="warning", subject=subject, sentence=sentence, fix=fix)


def problem(subject: str, sentence: str, fix: str) -> Finding:
    """The deploy would fail."""
    return Finding(level="problem", subject=subject, sentence=sentence, fix=fix)
