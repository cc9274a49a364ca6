"""Test what a signal does during a training run."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from tests.trainer.programs.processes import REPOSITORY
from trainer.signals import LAST_STEP_S

PROGRAM = """
import logging, sys
import trainer.signals
from trainer.signals import Signals
if len(sys.argv) > 1:
    trainer.signals.LAST_STEP_S = float(sys.argv[1])
logging.basicConfig(format="%(message)s")
signals = Signals()
with signals.graceful_stop():
    print("training", file=sys.stderr, flush=True)
    sys.stdin.readline()
    print("kept a checkpoint for", signals.received.name)
"""


@contextmanager
def training(before: Sequence[str] = (), after: Sequence[str] = ()) -> Iterator[subprocess.Popen[str]]:
    """Start a run whose last step lasts until a line on its standard input, or for the seconds in ``after``."""
    # The tests themselves may run under nohup.
    program = [sys.executable, "-c", PROGRAM, *after]
    command, pipe = ["env", "--default-signal=HUP", *before, *program], subprocess.PIPE
    with subprocess.Popen(command, cwd=REPOSITORY, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == "training\n"
            yield process
        finally:
            process.kill()


def send(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Send the run its first signal and wait until it has logged it."""
    assert process.stderr is not None
    process.send_signal(number)
    output = process.stderr.readline()
    assert output == f"{number.name}: will save a checkpoint after this step and exit; press Ctrl-C to exit now\n"


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_sighup_after_sigterm_does_not_prevent_the_checkpoint(first: signal.Signals) -> None:
    with training() as process:
        send(process, first)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGHUP)
        out, _ = process.communicate("now\n", timeout=120)
        assert (out, process.returncode) == (f"kept a checkpoint for {first.name}\n", 0)


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_second_ctrl_c_ends_the_process_at_once(first: signal.Signals) -> None:
    with training() as process:
        send(process, first)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 128 + first


def test_endless_step_is_abandoned_after_a_timeout() -> None:
    # docs/trainer.md promises a minute.
    assert LAST_STEP_S == 60
    with training(after=["0.01"]) as process:
        send(process, signal.SIGTERM)
        assert process.wait(timeout=120) == 128 + signal.SIGTERM
        assert process.stderr is not None
        assert process.stderr.read() == "ended by SIGTERM\n"


def test_sighup_is_ignored_under_nohup() -> None:
    with training(before=["env", "--ignore-signal=HUP"]) as process:
        process.send_signal(signal.SIGHUP)
        send(process, signal.SIGTERM)
        out, _ = process.communicate("now\n", timeout=120)
        assert out == "kept a checkpoint for SIGTERM\n"
