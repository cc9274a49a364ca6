"""Define a finding, one line of the report: how bad it is, what it is, and what to do."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One line of the report."""

    level: Level
    subject: str
    """The thing that was checked, in two or three words."""
    sentence: str
    fix: str = ""
    """Advice, or nothing."""

    def __str__(self) -> str:
        message = f"{self.sentence}: {self.fix}" if self.fix else self.sentence
        return f"{self.level:<9}{self.subject:<16}{message}"


def ok(subject: str, sentence: str) -> Finding:
    """Report that nothing has to be done."""
    return Finding(level="ok", subject=subject, sentence=sentence)


def warning(subject: str, sentence: str, fix: str = "") -> Finding:
    """Report something with which the deploy may still succeed."""
    return Finding(level="warning", subject=subject, sentence=sentence, fix=fix)


def problem(subject: str, sentence: str, fix: str) -> Finding:
    """Report something with which the deploy would fail."""
    return Finding(level="problem", subject=subject, sentence=sentence, fix=fix)
