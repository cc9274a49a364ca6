"""How a rank's program is found and started."""

import os
from pathlib import Path

import pytest

from launcher.runner.processes import SHELL, programs, start

NAME = "a-program"


def put(directory: Path, text: str = "#!/bin/sh\n", *, mode: int = 0o755) -> Path:
    """A program of this name."""
    directory.mkdir(exist_ok=True)
    path = directory / NAME
    path.write_text(text)
    path.chmod(mode)
    return path


def by_shell(line: str) -> list[str]:
    return [*SHELL, line]


def output(command: list[str], **environment: str) -> bytes:
    """What a rank that runs this says."""
    started = start(command, environment=environment, cwd="/")
    with os.fdopen(started.stdout, "rb") as stdout, os.fdopen(started.stderr, "rb") as stderr:
        said = stdout.read() + stderr.read()
    started.wait()
    return said


def test_a_line_that_is_a_programs_name_starts_it_without_a_shell(tmp_path: Path) -> None:
    path = put(tmp_path)
    found = programs(by_shell(NAME), environment={"PATH": f"/nowhere:{tmp_path}"}, cwd="/")
    assert found == [(str(path), [NAME]), (SHELL[0], by_shell(NAME))]


def test_of_a_program_in_the_shell_nothing_but_the_shell_is_missing(tmp_path: Path) -> None:
    put(tmp_path, '#!/bin/sh\necho "$0 $# $A"\n')
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "A": "b"}
    assert output(by_shell(NAME), **environment) == output(by_shell(f"{NAME} "), **environment)


@pytest.mark.parametrize(
    "line", [f"{NAME} x", f"{NAME};", f"${NAME}", f"~/{NAME}", f"A=b{NAME}", f"{NAME}\n", f"'{NAME}'"]
)
def test_what_means_something_to_a_shell_is_its_own(tmp_path: Path, line: str) -> None:
    put(tmp_path)
    assert programs(by_shell(line), environment={"PATH": str(tmp_path)}, cwd="/") == [(SHELL[0], by_shell(line))]


@pytest.mark.parametrize("variable", ["BASH_ENV", f"BASH_FUNC_{NAME}%%"])
def test_where_the_shell_may_take_the_name_for_something_else_it_is_asked(tmp_path: Path, variable: str) -> None:
    put(tmp_path)
    environment = {"PATH": str(tmp_path), variable: "() { echo function\n}"}
    assert programs(by_shell(NAME), environment=environment, cwd="/") == [(SHELL[0], by_shell(NAME))]


def test_the_shells_own_words_reach_it() -> None:
    assert output(by_shell("umask")).strip().isdigit()


def test_a_script_that_does_not_say_by_what_it_is_run_is_run_by_the_shell(tmp_path: Path) -> None:
    put(tmp_path, "echo script\n")
    assert output(by_shell(NAME), PATH=str(tmp_path)) == b"script\n"


def test_the_shell_says_what_cannot_be_run(tmp_path: Path) -> None:
    assert b"command not found" in output(by_shell(NAME), PATH=str(tmp_path))
    put(tmp_path, mode=0o644)
    assert b"Permission denied" in output(by_shell(f"{tmp_path}/{NAME}"))


def test_a_program_is_the_first_on_the_path_that_may_be_run(tmp_path: Path) -> None:
    put(tmp_path / "a", mode=0o644)
    (tmp_path / "b" / NAME).mkdir(parents=True)
    path = put(tmp_path / "c")
    put(tmp_path / "d")
    environment = {"PATH": ":".join(str(tmp_path / name) for name in "abcd")}
    [first, *_] = programs([NAME, "x"], environment=environment, cwd="/")
    assert first == (str(path), [NAME, "x"])


def test_the_path_may_name_directories_below_the_ranks_own(tmp_path: Path) -> None:
    put(tmp_path / "bin", "#!/bin/sh\necho found\n")
    started = start([NAME], environment={"PATH": "bin"}, cwd=str(tmp_path))
    assert os.read(started.stdout, 100) == b"found\n"
    assert started.wait() == 0


@pytest.mark.parametrize(("mode", "error"), [(0o644, PermissionError), (None, FileNotFoundError)])
def test_fails_when_no_program_can_be_run(tmp_path: Path, mode: int | None, error: type[OSError]) -> None:
    if mode is not None:
        put(tmp_path, mode=mode)
    with pytest.raises(error):
        start([NAME], environment={"PATH": str(tmp_path)}, cwd="/")
