"""Test what works inside a local AWS, and what the commands of the outside answer there."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.leak_check import REPOSITORY

TIMEOUT_S = 120.0


def inside(run_dir: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `local-aws` with LOCAL_AWS_DIR set, as it is inside."""
    return subprocess.run(
        ["local/bin/local-aws", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "LOCAL_AWS_DIR": str(run_dir)},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("shell", "shell works outside of a local AWS only, this is inside {inside}\n"),
        ("end", "end works outside of a local AWS only, this is inside {inside}\n"),
        ("fault kil worker2", "argument FAULT: invalid choice: 'kil' (choose from "),
        ("fault kill", "the following arguments are required: NODE; local-aws fault kill --help says more\n"),
        ("explode", "argument subcommand: invalid choice: 'explode' (choose from "),
    ],
)
def test_error_inside_is_one_line_and_exit_code_2(tmp_path: Path, line: str, error: str) -> None:
    result = inside(tmp_path, *line.split())
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {error.format(inside=tmp_path)}")
    assert result.stderr.count("\n") == 1
    assert "python -m local" not in result.stderr


def test_help_inside_knows_what_works_inside(tmp_path: Path) -> None:
    helped = inside(tmp_path, "--help").stdout
    assert helped.startswith("usage: local-aws [-h] {status,fault,capacity,quota,capacity-block}")
    assert "demo" not in helped


@pytest.mark.parametrize("target", ["end", "status", "lint"])
def test_make_inside_is_refused_at_once(tmp_path: Path, target: str) -> None:
    """Expect an error inside, where the set-up would start over with an empty cache and without internet."""
    environment = {**os.environ, "LOCAL_AWS_DIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = ["make", "--no-print-directory", target]
    result = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )
    assert (result.returncode, result.stdout) == (2, "")
    refusal, of_make = result.stderr.splitlines()
    assert refusal.startswith(f"error: make works outside of a local AWS only, this is inside {tmp_path}; ")
    assert " *** " in of_make
    assert not (tmp_path / "cache").exists()
