"""Test how a rank's program is found and started."""

import os
from pathlib import Path

import pytest

from launcher.runner.process.processes import find_program, start_process

NAME = "a-program"


def put(directory: Path, text: str = "#!/bin/sh\n", *, mode: int = 0o755) -> Path:
    """Write a program of this name."""
    directory.mkdir(exist_ok=True)
    path = directory / NAME
    path.write_text(text)
    path.chmod(mode)
    return path


def test_program_is_the_first_executable_on_the_path(tmp_path: Path) -> None:
    put(tmp_path / "a", mode=0o644)
    (tmp_path / "b" / NAME).mkdir(parents=True)
    path = put(tmp_path / "c")
    put(tmp_path / "d")
    environment = {"PATH": ":".join(str(tmp_path / name) for name in "abcd")}
    assert find_program(NAME, environment=environment, cwd="/") == str(path)


def test_path_may_name_directories_below_the_ranks_own(tmp_path: Path) -> None:
    put(tmp_path / "bin", "#!/bin/sh\necho found\n")
    started = start_process([NAME], environment={"PATH": "bin"}, cwd=str(tmp_path))
    assert os.read(started.stdout, 100) == b"found\n"
    assert started.wait() == 0


def test_unexecutable_program_is_skipped_on_the_path(tmp_path: Path) -> None:
    put(tmp_path / "a", "#!/no/such/python\n")
    put(tmp_path / "b")
    with pytest.raises(FileNotFoundError):
        start_process([NAME], environment={"PATH": f"{tmp_path / 'a'}:{tmp_path / 'b'}"}, cwd="/")


@pytest.mark.parametrize(("mode", "error"), [(0o644, PermissionError), (None, FileNotFoundError)])
def test_program_that_cannot_run_raises_oserror(tmp_path: Path, mode: int | None, error: type[OSError]) -> None:
    if mode is not None:
        put(tmp_path, mode=mode)
    with pytest.raises(error):
        start_process([NAME], environment={"PATH": str(tmp_path)}, cwd=str(tmp_path))
