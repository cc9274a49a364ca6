"""Determine the revision of the user's code."""

import subprocess
from pathlib import Path

from launcher.job_records.records import Revision

TIMEOUT_S = 5.0


class RevisionQuery:
    """Query to git that runs while the job starts, so that the job does not wait for it."""

    def __init__(self, cwd: str) -> None:
        # "v2" prints the commit in a header, and changed files on further lines.
        command = ["git", "--no-optional-locks", "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
        self._git = _start(command, cwd) if _is_checkout(Path(cwd)) else None

    @property
    def is_answered(self) -> bool:
        """Return True if git has ended."""
        return self._git is None or self._git.poll() is not None

    def answer(self) -> Revision:
        """Return the revision; None if there is none or git does not answer in time."""
        if self._git is None:
            return Revision()
        try:
            output, _ = self._git.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            # Do not wait: on a hung file server git cannot even be killed.
            self._git.kill()
            return Revision()
        return parse_status(output) if self._git.returncode == 0 else Revision()


def parse_status(output: str) -> Revision:
    """Parse the output of ``git status --porcelain=v2 --branch``."""
    header, _, _ = output.partition("\n")
    commit = header.removeprefix("# branch.oid ")
    if commit in (header, "(initial)"):
        return Revision()
    return Revision(commit=commit, dirty=any(line and not line.startswith("#") for line in output.splitlines()))


def _is_checkout(directory: Path) -> bool:
    """Return True if the directory looks like a checkout: git itself takes milliseconds to say no."""
    return any((path / ".git").exists() for path in (directory, *directory.parents))


def _start(command: list[str], cwd: str) -> "subprocess.Popen[str] | None":
    try:
        return subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError:
        return None
