"""Test that ``pip install .`` brings the program and every file that the nodes get, without building a wheel."""

import subprocess
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import tomllib

REPOSITORY = Path(__file__).parents[1]
PYPROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
PACKAGES = ("cli", "stacks", "bootstrap", "launcher", "trainer")


def test_the_program_is_there() -> None:
    module, _, function = PYPROJECT["project"]["scripts"]["dlcluster"].partition(":")
    assert callable(getattr(import_module(module), function))


def test_its_dependencies_are_the_pinned_ones() -> None:
    assert PYPROJECT["tool"]["setuptools"]["dynamic"]["dependencies"] == {"file": ["requirements.txt"]}
    lines = (REPOSITORY / "requirements.txt").read_text().splitlines()
    assert [line for line in lines if "==" not in line] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_file_of_a_package_is_installed(package: str) -> None:
    assert f"{package}*" in PYPROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    tracked = subprocess.run(["git", "ls-files", package], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    patterns = ("*.py", *PYPROJECT["tool"]["setuptools"]["package-data"]["*"])
    missing = [name for name in tracked.stdout.split() if not any(fnmatch(name, pattern) for pattern in patterns)]
    assert missing == []
