"""Test how the benchmarks are found, run and recorded in RESULTS.md."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import FIGURE, HEADING, describe_target, main, modules, row, update

REPOSITORY = Path(__file__).parents[2]
BENCHMARKS = {
    *("api_calls", "augmentation", "checkpoint", "dlcluster_start", "fanout", "figure1", "first_step", "gpu"),
    *("input_jpeg", "last_batch", "overhead", "rejoin", "scaling", "start", "sync", "sync_s3", "synth"),
}


def test_make_bench_finds_the_benchmarks() -> None:
    assert {*modules()} == BENCHMARKS
    refused = subprocess.run(
        [sys.executable, "-m", "benchmarks", "snyth"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert (refused.returncode, refused.stderr) == (
        2,
        f"error: no benchmark snyth, there are {', '.join(sorted(BENCHMARKS))}\n",
    )


@pytest.mark.parametrize("module", modules().values())
def test_each_benchmark_can_be_imported(module: str) -> None:
    subprocess.run([sys.executable, "-c", f"import {module}"], cwd=REPOSITORY, check=True)


def test_figure_replaces_its_older_row_and_leaves_the_others() -> None:
    before = HEADING + row("synth_default", "9.99", "ratio", load=0.1) + row("rejoin_worker", "5", "s", load=9.2)
    after = update(before, {"synth_default": ("1.05", "ratio")}, load=0.3)
    assert "9.99" not in after
    assert row("synth_default", "1.05", "ratio", load=0.3) in after
    assert row("rejoin_worker", "5", "s", load=9.2) in after


def test_figures_of_a_busy_machine_are_not_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "RESULTS.md"
    monkeypatch.setattr("benchmarks.__main__.RESULTS", results)
    monkeypatch.setattr("benchmarks.__main__.IDLE_TIMEOUT_S", 0.0)
    monkeypatch.setattr("benchmarks.__main__.run", lambda name: {f"{name}_default": ("1.05", "ratio")})
    monkeypatch.setattr("os.getloadavg", lambda: (1.4, 1.0, 1.0))
    assert main(["synth"]) == 1
    assert capsys.readouterr().err == "error: synth began at a load of 1.4, RESULTS.md takes at most 1\n"
    assert not results.exists()
    monkeypatch.setattr("os.getloadavg", lambda: (0.9, 1.0, 1.0))
    assert main(["synth"]) == 0
    assert row("synth_default", "1.05", "ratio", load=0.9) in results.read_text()


def test_missed_target_is_bold() -> None:
    assert describe_target("fanout_warm_32", "0.11") == "**missed: at most 0.1**"
    assert describe_target("fanout_warm_32", "0.10") == "at most 0.1"
    assert describe_target("scaling_lenet", "0.79") == "**missed: at least 0.8**"
    assert describe_target("synth_default", "9") == ""


def test_difference_below_zero_is_a_figure() -> None:
    found = FIGURE.fullmatch("gpu_checkpoint_stall -0.003 ratio")
    assert found is not None
    assert found[2] == "-0.003"


@pytest.mark.parametrize("program", ["benchmarks.gpu.gpu", "tests.gpu"])
def test_gpu_program_without_gpu_is_one_line(program: str) -> None:
    none = {"PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": ""}
    refused = subprocess.run(
        [sys.executable, "-m", program], cwd=REPOSITORY, env=none, capture_output=True, text=True, check=False
    )
    assert refused.returncode == 1
    assert re.fullmatch(r"error: no GPU on this machine that torch \S+ can use\n", refused.stderr)
