"""Test that the program ends with one line when it cannot measure."""

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[3] / "trainer/check"
STUCK = """\
import sys, time
from trainer.check.watchdog import Watchdog
watchdog = Watchdog("worker2", limit_s=0.05)
watchdog.enter("round 1, worker2 with worker3", waits="waits" in sys.argv)
time.sleep(0.5 if "waits" in sys.argv else 60)
watchdog.stop()
"""


def run(*words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-S", *words], cwd=PROGRAM.parents[1], capture_output=True, text=True, check=False, timeout=90
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_node_without_pytorch_is_named() -> None:
    # Without site, Python finds no installed packages.
    code, output = run(str(PROGRAM))
    assert code == 1
    assert output.startswith("check: ")
    assert output.endswith(f" has no torch in its Python environment ({sys.executable})\n")
    assert output.count("\n") == 1


def test_stage_that_does_not_end_is_named() -> None:
    assert run("-c", STUCK) == (1, "check: worker2: timed out after 0 s in stage: round 1, worker2 with worker3\n")


def test_waiting_rank_lets_the_others_report_first() -> None:
    assert run("-c", STUCK, "waits") == (0, "")
