"""Test the bundle as the program that installs the agent on a node."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bootstrap import main
from bootstrap.errors import ConfigError

BOOTSTRAP = Path(main.__file__).parent


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Create a release as on a node: it runs as a directory, from anywhere, with its own libraries."""
    release = tmp_path / "releases" / "one"
    shutil.copytree(BOOTSTRAP, release / "bootstrap", ignore=shutil.ignore_patterns("__pycache__"))
    (release / "vendor").mkdir()
    (release / "vendor" / "boto3.py").write_text("raise SystemExit('the bundled boto3')\n")
    current = tmp_path / "current"
    current.symlink_to(release)
    return current


def run(bundle: Path, *arguments: str, code: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [str(bundle / "bootstrap"), *arguments] if code is None else ["-c", code]
    return subprocess.run(
        [sys.executable, "-I", *command],
        cwd="/",
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.allow_subprocess
def test_directory_runs_as_a_program(bundle: Path) -> None:
    assert "makes an instance a node" in run(bundle, "--help").stdout.lower()
    assert run(bundle).returncode == 2
    assert run(bundle, "dance").returncode == 2


@pytest.mark.allow_subprocess
def test_bundled_libraries_come_before_those_of_the_machine(bundle: Path) -> None:
    found = run(bundle, "run")
    assert "the bundled boto3" in found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.allow_subprocess
def test_bundle_whose_service_cannot_be_imported_is_not_installed(bundle: Path) -> None:
    (bundle / "vendor" / "boto3.py").unlink()
    (bundle / "bootstrap" / "install.py").write_text("def install(*_, **__):\n    print('installed')\n")
    assert run(bundle, "install").stdout == "installed\n"
    with (bundle / "bootstrap" / "agent_service.py").open("a") as service:
        service.write("import bootstrap.no_such_module\n")
    found = run(bundle, "install")
    assert (found.returncode, found.stdout) == (1, "")
    assert "no_such_module" in found.stderr


def test_error_is_one_line_and_exit_code_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def serve(_root: Path) -> None:
        raise ConfigError("version must be 1, got 2")

    monkeypatch.setattr("bootstrap.agent_service.serve", serve)
    assert main.main(["run"]) == 1
    assert capsys.readouterr().err == "bootstrap: version must be 1, got 2\n"
