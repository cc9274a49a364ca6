"""Run commands of dlcluster in the test's own process, which takes a tenth of the time of processes of their own."""

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from local.run.user import User
from tests.cli.command_lines import prints_json, with_json
from tests.cli.json_page import undocumented_keys


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A command's output and exit code."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """Return the only line of a command that failed before it did anything."""
        assert (self.out, self.err.count("\n")) == ("", 1), self
        assert self.err.startswith("dlcluster: "), self
        return self.err.removeprefix("dlcluster: ").removesuffix("\n")


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A user's directory, variables and options before the command."""

    capture: pytest.CaptureFixture[str]
    options: list[str] = field(default_factory=list)

    def run(self, words: list[str]) -> Answer:
        """Run one command."""
        code = main([*self.options, *words])
        sys.stdout.flush()
        out, err = self.capture.readouterr()
        return Answer(code=code, out=out, err=err)

    def fails(self, words: list[str]) -> tuple[int, str]:
        """Return the exit code and the error of a command, which are the same with ``--json``, if it has that.

        It gets no ``--yes``, so that one that does not fail ends no node and the tests after it.
        """
        words = [word for word in words if word != "--yes"]
        answer = self.run(words)
        if prints_json(words[0]):
            assert self.run(with_json(words)) == answer
        return answer.code, answer.error

    def json(self, words: list[str], *, code: int = 0) -> dict[str, Any]:
        """Return the object that a command prints, all of whose keys are documented."""
        answer = self.run(with_json(words))
        assert answer.code == code, answer
        found: dict[str, Any] = json.loads(answer.out)
        assert found["version"] == 1
        assert {*undocumented_keys(words[0], found)} == set()
        return found


def enter_project(user: User, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go to a project's directory, as the user, with an empty home; a command that would become ssh fails."""
    monkeypatch.setattr(os, "execvp", lambda *words: pytest.fail(f"started {words}"))
    project, home = directory / "project", directory / "home"
    for path in (project, home):
        path.mkdir()
    (project / "train.py").touch()
    monkeypatch.chdir(project)
    for name, value in {**user.environment, "HOME": str(home)}.items():
        if os.environ.get(name) != value:
            monkeypatch.setenv(name, value)
