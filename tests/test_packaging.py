"""Test that the wheel, built from the source distribution, brings the program and every file that the nodes get."""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tomllib

REPOSITORY = Path(__file__).parents[1]
ON_NODES = ("bootstrap", "launcher", "trainer")
PYPROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
PACKAGES = ("cli", "stacks", *ON_NODES)
EXAMPLES = REPOSITORY / "examples"
OWN_APPS = {"own_app.py": "Training", "own_stack.py": "Vision"}
"""Examples of a user's own app, in the order of their page, each with the stack that contains the cluster."""


BUILD_SOURCES = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
INSTALL_S = 500
INSTALL = (
    "-m",
    "pip",
    "--disable-pip-version-check",
    "--no-input",
    "install",
    "--no-index",
    "--no-compile",
    "--no-deps",
    "--no-build-isolation",
)


@dataclass(frozen=True, kw_only=True)
class Installed:
    """The package as pip installed it, outside of the checkout."""

    sources: Path
    """The unpacked source distribution."""
    site: Path
    """Directory with the packages of the wheel."""

    def run(self, *words: str | Path, cwd: Path, **variables: str) -> str:
        """Run Python on the installed packages; return its output."""
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment = {**kept, "PYTHONPATH": str(self.site), **variables}
        done = subprocess.run(
            [sys.executable, *words], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Build the source distribution from a copy of the tracked files, and install it without a network."""
    top = tmp_path_factory.mktemp("package")
    for name in tracked():
        copy = top / "checkout" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPOSITORY / name, copy)
    run = functools.partial(subprocess.run, check=True, capture_output=True, timeout=300)
    run([sys.executable, "-c", BUILD_SOURCES, top], cwd=top / "checkout")
    (archive,) = top.glob("*.tar.gz")
    run(["tar", "-xzf", archive, "-C", top])
    run([sys.executable, *INSTALL, "--target", top / "site", archive], cwd=top)
    return Installed(sources=top / archive.name.removesuffix(".tar.gz"), site=top / "site")


def tracked(*paths: str) -> list[str]:
    """Return the tracked files, of all folders or some."""
    listed = subprocess.run(["git", "ls-files", *paths], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.splitlines() if (REPOSITORY / name).exists()]


def test_dependencies_are_ranges_that_begin_with_the_pinned_versions() -> None:
    pinned = dict(line.split("==") for line in (REPOSITORY / "requirements.txt").read_text().split())
    ranges = [f"{name}>={version},<{int(version.split('.')[0]) + 1}" for name, version in pinned.items()]
    assert PYPROJECT["project"]["dependencies"] == ranges


def import_in(directory: Path) -> "subprocess.CompletedProcess[str]":
    """Import the constructs like an app in this directory, which Python searches first."""
    command = [sys.executable, "-c", "import deeplearning_cdk"]
    path = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(command, cwd=directory, env=path, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("name", ["stacks", "bootstrap"])
def test_hidden_package_is_named_in_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    last = import_in(tmp_path).stderr.splitlines()[-1]
    ours, theirs = REPOSITORY / name, tmp_path / name
    assert last == f"ImportError: package {name} must be deeplearning-cdk's {ours}, Python finds {theirs}: rename it"


def test_wheel_has_every_file_of_the_packages(installed: Installed) -> None:
    assert [name for name in tracked(*PACKAGES, "deeplearning_cdk.py") if not (installed.site / name).is_file()] == []


def test_installed_program_runs_outside_of_the_checkout(installed: Installed, tmp_path: Path) -> None:
    program = installed.site / "bin/dlcluster"
    assert installed.run(program, "--version", cwd=tmp_path) == f"dlcluster {PYPROJECT['project']['version']}\n"
    assert "preflight" in installed.run(program, "--help", cwd=tmp_path)
    assert "cdk.json" in installed.run(program, "preflight", "--help", cwd=tmp_path)


def test_page_about_own_apps_shows_the_examples() -> None:
    shown = re.findall(
        r"^```python\n(.*?)^```", (REPOSITORY / "docs/use/own-app.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert shown == [(EXAMPLES / name).read_text().partition("\n\n")[2] for name in OWN_APPS]


@pytest.mark.parametrize(("name", "stack"), OWN_APPS.items())
def test_own_app_of_a_user_can_contain_the_cluster(installed: Installed, tmp_path: Path, name: str, stack: str) -> None:
    out = tmp_path / "out"
    installed.run(installed.sources / "examples" / name, cwd=tmp_path, CDK_OUTDIR=str(out), CDK_VALIDATION="false")
    check_cluster(out, stack)


def check_cluster(out: Path, stack: str) -> None:
    """Check that a stack has both groups of nodes, whose roles read the images, and that the bundle has every file."""
    resources = json.loads((out / f"{stack}.template.json").read_text())["Resources"].values()
    groups = [resource for resource in resources if resource["Type"] == "AWS::AutoScaling::AutoScalingGroup"]
    assert len(groups) == 2
    policies = [json.dumps(resource) for resource in resources if resource["Type"] == "AWS::IAM::Policy"]
    assert len([policy for policy in policies if "s3:GetObject*" in policy and "Images" in policy]) == 2
    (bundle,) = out.glob("asset.*.zip")
    with zipfile.ZipFile(bundle) as files:
        on_nodes = {name for name in files.namelist() if name.startswith(ON_NODES)}
    assert on_nodes == set(tracked(*ON_NODES))


@pytest.mark.soak
def test_package_installs_with_its_pinned_dependencies_into_an_empty_environment(
    installed: Installed, tmp_path: Path
) -> None:
    """pip fetches the dependencies from its index."""
    venv, app = tmp_path / "venv", tmp_path / "app"
    app.mkdir()
    run = functools.partial(subprocess.run, cwd=app, check=True, stdout=subprocess.PIPE, text=True, timeout=INSTALL_S)
    run([sys.executable, "-m", "venv", venv])
    run([venv / "bin/pip", "install", "--quiet", "-c", REPOSITORY / "constraints.txt", installed.sources])
    assert run([venv / "bin/dlcluster", "--version"]).stdout == f"dlcluster {PYPROJECT['project']['version']}\n"
    for name, stack in OWN_APPS.items():
        out = tmp_path / stack
        variables = {**os.environ, "CDK_OUTDIR": str(out), "CDK_VALIDATION": "false"}
        run([venv / "bin/python", installed.sources / "examples" / name], env=variables)
        check_cluster(out, stack)
