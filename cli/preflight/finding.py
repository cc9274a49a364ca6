"""Define a finding, one line of the report: its severity, its subject, and what to do about it."""

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
    """Advice; empty if there is none."""

    def __str__(self) -> str:
        message = f"{self.sentence}: {self.fix}" if self.fix else self.sentence
        return f"{self.level:<9}{self.subject:<16}{message}"


def ok(subject: str, sentence: str) -> Finding:
    """Report that nothing needs to be done."""
    return Finding(level="ok", subject=subject, sentence=sentence)


def warning(subject: str, sentence: str, fix: str = "") -> Finding:
    """Report something that may not prevent the deploy."""
    return Finding(level="warning", subject=subject, sentence=sentence, fix=fix)


def problem(subject: str, sentence: str, fix: str) -> Finding:
    """Report something that would make the deploy fail."""
    return Finding(level="problem", subject=subject, sentence=sentence, fix=fix)
