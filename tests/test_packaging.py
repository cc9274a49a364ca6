"""Test that ``pip install .`` installs the program and every file that the nodes get, without building a wheel."""

import json
import os
import subprocess
import sys
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


def test_its_dependencies_are_ranges_that_begin_with_the_pinned_versions() -> None:
    pinned = dict(line.split("==") for line in (REPOSITORY / "requirements.txt").read_text().split())
    ranges = [f"{name}>={version},<{int(version.split('.')[0]) + 1}" for name, version in pinned.items()]
    assert PYPROJECT["project"]["dependencies"] == ranges


def import_in(directory: Path) -> "subprocess.CompletedProcess[str]":
    """Import the constructs like an app in this directory, which Python searches first."""
    command = [sys.executable, "-c", "import deeplearning_cdk"]
    path = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(command, cwd=directory, env=path, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("name", ["stacks", "bootstrap"])
def test_fails_in_one_line_when_the_app_hides_a_package(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    last = import_in(tmp_path).stderr.splitlines()[-1]
    ours, theirs = REPOSITORY / name, tmp_path / name
    assert last == f"ImportError: package {name} must be deeplearning-cdk's {ours}, Python finds {theirs}: rename it"


def test_a_users_own_app_has_the_cluster_beside_its_stacks(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "CDK_OUTDIR": str(tmp_path), "CDK_VALIDATION": "false"}
    app = REPOSITORY / "examples/own_app.py"
    subprocess.run([sys.executable, app], cwd=tmp_path, env=environment, check=True, timeout=120)
    training = json.loads((tmp_path / "Training.template.json").read_text())
    assert training["Outputs"]["ClusterName"]["Value"] == "vision"
    groups = [each for each in training["Resources"].values() if each["Type"] == "AWS::AutoScaling::AutoScalingGroup"]
    assert len(groups) == 2


@pytest.mark.parametrize("package", PACKAGES)
def test_every_file_of_a_package_is_installed(package: str) -> None:
    assert f"{package}*" in PYPROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    tracked = subprocess.run(["git", "ls-files", package], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    patterns = ("*.py", *PYPROJECT["tool"]["setuptools"]["package-data"]["*"])
    missing = [name for name in tracked.stdout.split() if not any(fnmatch(name, pattern) for pattern in patterns)]
    assert missing == []
