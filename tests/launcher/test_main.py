"""Test the first moments of a launch: what it imports, and Ctrl-C."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launcher import main, recorded_run
from launcher.job_records.recorder import JobRecorder, jobs_directory
from launcher.job_records.records import JobState, read_record
from launcher.output.output_stream import OutputStream
from launcher.transport.protocol import FrameType
from tests.launcher.example_job import JOB

LAUNCHER = Path(main.__file__).with_name("__main__.py")
INTERRUPTED = "import signal\nsignal.raise_signal(signal.SIGINT)\nwhile True: pass\n"
"""Module during whose import Ctrl-C arrives."""
STARTED_WITH = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
del sys.argv[:2]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs the program in the second argument with the modules in the first."""


@pytest.mark.parametrize("module", ["asyncio", "json"])
def test_ctrl_c_during_imports_ends_launch_silently(tmp_path: Path, module: str) -> None:
    (tmp_path / f"{module}.py").write_text(INTERRUPTED)
    # This also works if the tests themselves run under nohup or in the background.
    python = ["env", "--default-signal=INT", sys.executable, "-I", "-S", "-c", STARTED_WITH, str(tmp_path)]
    command = [*python, str(LAUNCHER), "--launcher", "local", "sleep 1000"]
    environment = {"HOME": str(tmp_path), "PATH": os.defpath}
    done = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, b"", b"")


def test_idle_runners_are_called_before_slow_imports() -> None:
    program = """
import sys
sys.path.insert(0, sys.argv[1])
from launcher.main import open_pool, parse_options
parse_options(["--launcher", "local", "x"], environ={})
print(sorted({"asyncio", "shutil", "ssl", "launcher.recorded_run"} & set(sys.modules)))
"""
    command = [sys.executable, "-I", "-S", "-c", program, str(LAUNCHER.parents[1])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_torch_job_imports_no_other_framework() -> None:
    program = """
import sys
sys.path.insert(0, sys.argv[1])
from launcher.main import import_asyncio, parse_options
parse_options(["--launcher", "local", "python", "train.py"], environ={})
import_asyncio()
import launcher.recorded_run
frameworks = {f"launcher.frameworks.{name}" for name in ("mxnet", "horovod", "horovod_store", "mpi")}
print(sorted((frameworks | {"bootstrap.cluster.records", "launcher.runner.fast_imports", "ssl"}) & set(sys.modules)))
"""
    command = [sys.executable, "-I", "-S", "-c", program, str(LAUNCHER.parents[1])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_ctrl_c_before_the_job_begins_cancels_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_coroutine: object) -> None:
        _coroutine.close()  # type: ignore[attr-defined]  # asyncio.run takes any awaitable
        raise KeyboardInterrupt

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("DEEPLEARNING_BUCKET", raising=False)
    monkeypatch.setattr(asyncio, "run", interrupted)
    streams = {FrameType.STDOUT: OutputStream(1), FrameType.STDERR: OutputStream(2)}
    recorder = JobRecorder(JOB, job_id="j", cwd="/")
    assert recorded_run.run_recorded_job(JOB, recorder=recorder, cwd="/", streams=streams) == 130
    assert capfd.readouterr().err == "launch: stopped by SIGINT\n"
    record = read_record(jobs_directory() / "j")
    assert record is not None
    assert record.state is JobState.CANCELLED


def test_ctrl_c_before_the_signal_handlers_cancels_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    async def cancelled(*_: object, **__: object) -> None:
        # Like asyncio.run on SIGINT from Python 3.11 on, while it has the handler.
        raise asyncio.CancelledError

    monkeypatch.setattr(recorded_run, "run_with_restarts", cancelled)
    recorder = JobRecorder(JOB, job_id="j", cwd="/")
    failure = asyncio.run(recorded_run.run_until_signal(JOB, recorder=recorder, cwd="/", streams={}))
    assert failure == recorded_run.stopped_by(signal.SIGINT)
