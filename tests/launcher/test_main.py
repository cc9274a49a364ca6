"""Ctrl-C in the first moments of a launch, before anything heeds it."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launcher import main
from launcher.channel import Channel
from launcher.frames import Kind
from launcher.jobs.journal import Journal, jobs_directory
from launcher.jobs.record import State, read_record
from tests.launcher.records import JOB

LAUNCHER = Path(main.__file__).with_name("__main__.py")


@pytest.mark.parametrize("module", ["asyncio.events", "launcher.hosts"])
def test_while_it_is_being_imported_it_ends_without_a_word(module: str) -> None:
    command = [sys.executable, "-I", "-S", "-X", "importtime", str(LAUNCHER), "--launcher", "local", "sleep 1000"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as launch:
        assert launch.stderr is not None
        for line in launch.stderr:
            if line.split()[-1] == module:
                launch.send_signal(signal.SIGINT)
                break
        said = launch.stderr.read()
    assert launch.returncode == 128 + signal.SIGINT
    assert all(line.startswith("import time:") for line in said.splitlines())


def test_before_the_job_begins_it_is_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_coroutine: object) -> None:
        _coroutine.close()  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("DEEPLEARNING_BUCKET", raising=False)
    monkeypatch.setattr(asyncio, "run", interrupted)
    streams = {Kind.STDOUT: Channel(1), Kind.STDERR: Channel(2)}
    assert main.carry_out(JOB, journal=Journal(JOB, job_id="j", cwd="/"), cwd="/", streams=streams) == 130
    assert capfd.readouterr().err == "launch: stopped by SIGINT\n"
    record = read_record(jobs_directory() / "j")
    assert record is not None
    assert record.state is State.CANCELLED
