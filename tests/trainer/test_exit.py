"""Test how the program ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer.programs.processes import REPOSITORY


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY)} | variables,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_internal_error_ends_the_process_at_once(tmp_path: Path) -> None:
    # MXNet's store waits for all other ranks when it is freed.
    program = tmp_path / "program.py"
    program.write_text(
        "from trainer import train\n"
        "class Store:\n"
        "    def __del__(self): print('waits for ever', flush=True)\n"
        "store = Store()\n"
        "def fail(): raise ValueError('ours')\n"
        "train.main = fail\n"
        "train.main_and_exit()\n"
    )
    result = run(str(program))
    assert result.returncode == 1
    assert result.stdout == ""
    assert "trainer: internal error\nTraceback" in result.stderr
    assert "ValueError: ours" in result.stderr


@pytest.mark.parametrize("role", ["server", "scheduler"])
def test_server_process_ignores_the_options(tmp_path: Path, role: str) -> None:
    (tmp_path / "mxnet.py").write_text("import sys\nprint('serving')\nsys.exit()\n")
    path = f"{REPOSITORY}:{tmp_path}"
    result = run("-m", "trainer", "--no-such-option", DMLC_ROLE=role, PYTHONPATH=path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "serving\n", "")


def test_worker_reports_a_wrong_option(tmp_path: Path) -> None:
    result = run("-m", "trainer", "--no-such-option", DMLC_ROLE="worker")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "trainer: unknown argument '--no-such-option', see --help\n"
