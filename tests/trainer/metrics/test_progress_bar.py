"""Test the progress bar on a terminal."""

import io
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer.programs.processes import DEADLINE_S, REPOSITORY
from trainer.metrics.progress_bar import CLEAR, LogHandler, ProgressBar, describe, make_progress_bar
from trainer.progress import Progress

DRAWING_EACH_STEP = """\
import trainer.metrics.progress_bar
from trainer.train import main_and_exit
trainer.metrics.progress_bar.EVERY_S = 0.0
main_and_exit()
"""
"""Program that draws the bar after each step; a fast machine may train the whole epoch between two drawings."""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def progress(samples: int, *, epoch: int = 0) -> Progress:
    return Progress(epoch=epoch, samples=samples, loss_sum=0.5 * samples)


def test_bar_shows_progress_speed_and_remaining_time() -> None:
    line = describe(progress(500, epoch=3), total=2000, speed=20)
    assert line == "Epoch[3]  25% |=======>                      | 500/2000 20 samples/s loss=0.5000 1:15 left"
    assert describe(progress(2000), total=2000, speed=None) == f"Epoch[0] 100% |{'=' * 30}| 2000/2000 loss=0.5000"


def test_speed_counts_from_the_epochs_first_drawing() -> None:
    times = iter([0.0, 0.0, 2.0, 2.0, 10.0, 10.0])
    terminal = Terminal()
    bar = ProgressBar(terminal, clock=lambda: next(times), columns=lambda: 200)
    bar.show(progress(1000), total=2000)
    bar.show(progress(1400), total=2000)
    bar.show(progress(64, epoch=1), total=2000)
    first, second, third = terminal.getvalue().split(CLEAR)[1:]
    assert "samples/s" not in first
    assert " 200 samples/s loss=0.5000 0:03 left" in second
    assert "samples/s" not in third


def test_bar_is_drawn_at_a_limited_rate_and_never_wraps() -> None:
    terminal = Terminal()
    bar = ProgressBar(terminal, clock=lambda: 0.0, columns=lambda: 20)
    for samples in range(10):
        bar.show(progress(samples), total=10)
    assert terminal.getvalue() == f"{CLEAR}Epoch[0]   0% |>   "


def test_log_lines_replace_the_bar() -> None:
    terminal = Terminal()
    bar = ProgressBar(terminal, columns=lambda: 80)
    lines = LogHandler(terminal, bar)
    bar.show(progress(1), total=10)
    drawn = terminal.getvalue()
    for text in ("first", "second"):
        lines.emit(logging.makeLogRecord({"msg": text}))
    assert terminal.getvalue() == f"{drawn}{CLEAR}first\nsecond\n"


@pytest.mark.parametrize(
    ("stream", "rank", "environment"),
    [
        (io.StringIO(), 0, {"TERM": "xterm"}),
        (Terminal(), 1, {"TERM": "xterm"}),
        (Terminal(), 0, {"TERM": "dumb"}),
        (Terminal(), 0, {}),
    ],
)
def test_only_rank_0_draws_and_only_on_a_capable_terminal(
    stream: io.StringIO, rank: int, environment: dict[str, str]
) -> None:
    bar = make_progress_bar(stream, rank=rank, environment=environment)
    bar.show(progress(1), total=10)
    bar.clear()
    assert stream.getvalue() == ""


def test_bar_is_drawn_on_a_terminal_but_not_in_a_file(tmp_path: Path) -> None:
    options = ("--benchmark", "1", "--num-examples", "640", "--num-epochs", "1", "--disp-batches", "3")
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", "TERM": "xterm"}
    master, terminal = os.openpty()
    with (tmp_path / "said").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", DRAWING_EACH_STEP, *options],
            cwd=tmp_path,
            env=environment,
            stdout=out,
            stderr=terminal,
        )
    os.close(terminal)
    output = bytearray()
    # After its last writer has closed, a terminal gives an error instead of an end (pty(7)).
    with os.fdopen(master, "rb", buffering=0) as loader:
        while True:
            try:
                output += loader.read(4096)
            except OSError:
                break
    assert process.wait(DEADLINE_S) == 0, output
    text = output.decode().replace("\r\n", "\n")
    assert re.search(r"\r\x1b\[KEpoch\[0\] +\d+% \|=*> *\| \d+/640 \d+ samples/s loss=\d", text)
    # The bar is erased before each log line and at the end.
    lines = [line.rpartition(CLEAR)[2] for line in text.split("\n")]
    assert sum(line.startswith("rank 0/1 Epoch[0] Batch [") for line in lines) == 3
    assert all(line.startswith("rank 0/1 ") for line in lines if line)
    assert "\x1b" not in (tmp_path / "said").read_text()
