"""Test what ``dlcluster`` says in a Python without the packages that it needs."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from stacks.missing_package import missing_message

PROGRAM = Path(__file__).parents[2] / "bin" / "dlcluster"
OTHERS = ("botocore", "jmespath", "urllib3", "dateutil", "six", "click")
"""Packages with which ``dlcluster status`` comes as far as looking for a region."""


def test_environment_is_activated_where_there_is_one(tmp_path: Path) -> None:
    without = missing_message("click", checkout=tmp_path)
    make = "docs/start/install.md shows how to make an environment with requirements.txt"
    how = f"{make} (or activate yours: . .venv/bin/activate)"
    assert without == f"{sys.executable} has no click: {how}"
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/activate").touch()
    how = "activate the environment that has requirements.txt installed, as in: . .venv/bin/activate"
    assert missing_message("click", checkout=tmp_path) == f"{sys.executable} has no click: {how}"


@pytest.mark.parametrize("words", [["status"], ["run", "--", "true"]])
def test_missing_package_is_named_before_a_missing_region(words: list[str], tmp_path: Path) -> None:
    for name in OTHERS:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        origin = Path(spec.origin)
        source = origin.parent if origin.name == "__init__.py" else origin
        (tmp_path / source.name).symlink_to(source)
    found = subprocess.run(
        # -S: without the packages of this environment
        [sys.executable, "-S", PROGRAM, *words], env={"PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)},
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (found.returncode, found.stderr) == (1, f"dlcluster: {missing_message('paramiko')}\n")
