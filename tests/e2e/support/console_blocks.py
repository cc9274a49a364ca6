"""Run the ``console`` blocks of a page line by line, and compare their output with the page.

A line ``laptop$ COMMAND`` runs on the user's machine, ``master$ COMMAND`` on the master; ``> `` continues a command.
The lines below a command are its output, in any order. A line ``...`` stands for lines that the page leaves out.
Identifiers, addresses and numbers may differ between runs.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Final

BLOCK: Final = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PROMPT: Final = re.compile(r"(laptop|master)\$ (.*)")
MARK: Final = "@@ end of a command"
OMITTED: Final = "..."
CHANGING: Final = (
    (re.compile(r"\bi-[0-9a-f]{17}\b"), "ID"),
    (re.compile(r"\b\d{8}-\d{6}-\d{3}[0-9a-f]{4}\b"), "JOB"),
    (re.compile(r"\bip-\d+-\d+-\d+-\d+\b"), "HOST"),
    (re.compile(r"\b\d+\.\d+\.\d+\.\d+\b"), "ADDRESS"),
    (re.compile(r"\d+(\.\d+)?"), "N"),
    (re.compile(r" +"), " "),
)
"""Patterns of text that may differ between two runs, each with its replacement."""


@dataclass(kw_only=True, slots=True)
class Step:
    """One command of a page with the output that the page shows."""

    machine: str
    command: str
    shown: list[str] = field(default_factory=list)

    def differences(self, printed: Sequence[str]) -> list[str]:
        """Return one line for each line that is shown but not printed, or printed but not shown."""
        shown, actual = ({general(line): line for line in lines if line.strip()} for lines in (self.shown, printed))
        missing = [f"not printed: {line}" for key, line in shown.items() if key not in actual and key != OMITTED]
        if OMITTED in shown:
            return missing
        return [*missing, *(f"not shown: {line}" for key, line in actual.items() if key not in shown)]


def general(line: str) -> str:
    """Replace what may differ between two runs."""
    for pattern, replacement in CHANGING:
        line = pattern.sub(replacement, line)
    return line.strip()


def steps(page: Path) -> list[Step]:
    """Return the commands of a page, in order."""
    parsed: list[Step] = []
    for block in BLOCK.findall(page.read_text()):
        for line in block.splitlines():
            if prompt := PROMPT.fullmatch(line):
                parsed.append(Step(machine=prompt[1], command=prompt[2].split("   # ")[0].rstrip()))
            elif line == ">" or line.startswith("> "):
                parsed[-1].command += f"\n{line[2:]}"
            else:
                parsed[-1].shown.append(line)
    return parsed


def sessions(page: Path) -> Iterator[tuple[str, list[Step]]]:
    """Yield the successive commands on one machine, which share a shell with its directory."""
    for machine, group in groupby(steps(page), key=lambda step: step.machine):
        yield machine, list(group)


def script(session: Sequence[Step]) -> str:
    """Return a shell script that runs the commands and marks where each ends."""
    return "\n".join(
        f"{{ {step.command}\n}} 2>&1; code=$?; [ $code = 0 ] || echo exit code $code; echo '{MARK}'" for step in session
    )


def outputs(text: str) -> list[list[str]]:
    """Split what a script printed into the lines of each command."""
    return [part.splitlines() for part in text.split(f"{MARK}\n")[:-1]]
