"""Test that a machine that cannot run the local AWS prints one line with advice."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.leak_check import REPOSITORY

WHERE = 'docs/local-aws.md, "On another machine"'
DEBIAN = 'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n'
FEDORA = 'ID=fedora\nVERSION_ID=42\nPRETTY_NAME="Fedora Linux 42"\n'
TRIXIE = 'ID=debian\nVERSION_ID="13"\nPRETTY_NAME="Debian GNU/Linux 13 (trixie)"\n'


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Provide the only programs of a machine without packages, for a user who is not root."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name in ("bash", "sh", "cat", "dirname", "make"):
        path = shutil.which(name)
        assert path is not None
        (directory / name).symlink_to(path)
    for name, script in (("id", "echo 1000"), ("dpkg-query", "exit 1"), ("apt-get", "exit 100")):
        (directory / name).write_text(f"#!/bin/sh\n{script}\n")
        (directory / name).chmod(0o755)
    return directory


def setup(programs: Path, system: str | None) -> subprocess.CompletedProcess[str]:
    os_release = programs.parent / "os-release"
    if system is not None:
        os_release.write_text(system)
    return run("local/setup.sh", programs=programs, OS_RELEASE=str(os_release))


def run(*command: str, programs: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(programs), "XDG_CACHE_HOME": str(programs.parent / "cache"), **variables}
    return subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize(
    ("system", "name"),
    [(FEDORA, "Fedora Linux 42"), (TRIXIE, "Debian GNU/Linux 13 (trixie)"), (None, "an unknown system")],
)
def test_another_system_is_one_line_and_exit_code_1(programs: Path, system: str | None, name: str) -> None:
    result = setup(programs, system)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(f"setup: error: this is {name}, not Debian 12; ")
    assert result.stderr.endswith(f"{WHERE}\n")
    assert result.stderr.count("\n") == 1


def test_missing_apt_is_one_line_and_exit_code_1(programs: Path) -> None:
    (programs / "apt-get").unlink()
    result = setup(programs, DEBIAN)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("setup: error: there is no dpkg or apt-get on this Debian; ")
    assert result.stderr.endswith(f"{WHERE}\n")
    assert result.stderr.count("\n") == 1


def test_missing_packages_are_one_line_for_another_user_than_root(programs: Path) -> None:
    result = setup(programs, DEBIAN)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("setup: error: packages missing: python3 ")
    assert "; as root: apt-get install python3 " in result.stderr
    assert result.stderr.endswith(f"{WHERE}\n")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("target", ["demo", "local-aws", "test", "test-frameworks", "soak"])
def test_another_user_than_root_is_refused_in_one_line(programs: Path, target: str) -> None:
    result = run("make", "--no-print-directory", target, programs=programs)
    assert (result.returncode, result.stdout) == (2, "")
    refusal, of_make = result.stderr.splitlines()
    assert refusal.startswith("error: the local AWS makes network namespaces and containers: run as root, ")
    assert refusal.endswith(f"({WHERE})")
    assert " *** " in of_make
    assert not (programs.parent / "cache").exists()


def test_every_named_package_exists() -> None:
    assert "\n## On another machine\n" in (REPOSITORY / "docs/local-aws.md").read_text()


def test_no_package_is_missing_on_this_machine() -> None:
    """Check that the other tests' stand-ins cause their errors, and not a defect of this machine."""
    result = subprocess.run(
        ["local/setup.sh"], cwd=REPOSITORY, env=os.environ, capture_output=True, text=True, check=False, timeout=120
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert Path(result.stdout.strip(), "bin/python").exists()


@pytest.mark.parametrize("target", ["others", "alone"])
@pytest.mark.parametrize("mark", ["", "ab12"])
def test_temporary_files_go_to_tmpdir_even_with_a_space(target: str, mark: str) -> None:
    own = "/tmp/with space/deeplearning-cdk/tmp" if not mark else "/tmp/own space"
    variables = {"XDG_CACHE_HOME": "/tmp/with space", "TMPDIR": "/tmp/own space", "LOCAL_AWS_MARK": mark}
    recipe = subprocess.check_output(
        ["make", "--dry-run", target], cwd=REPOSITORY, env={**os.environ, **variables}, text=True
    )
    assert f'mkdir -p "{own}"' in recipe
    assert f'export TMPDIR="{own}";' in recipe
