"""Test what Ctrl-C and a lost connection do to a run's job."""

import subprocess
import sys
from pathlib import Path

import click
import pytest

from cli.errors import EXIT_INTERRUPTED
from cli.main import main
from cli.ssh.master_connection import kill_on_disconnect
from tests.cli.jobs.master import JOB, Master, record, set_job_answers


def interrupted() -> int:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("answer", "stops"), [(True, False), (False, True), (click.Abort(), False), (None, True)],
    ids=["leave it", "stop it", "Ctrl-C again", "no terminal"],
)  # fmt: skip
def test_ctrl_c_asks_once_whether_to_leave_the_job_running(
    master: Master, monkeypatch: pytest.MonkeyPatch, answer: object, stops: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def confirm(text: str, **_: object) -> object:
        asked.append(text)
        if isinstance(answer, Exception):
            raise answer
        return answer

    set_job_answers(master, end=record())
    master.on_stream = interrupted
    monkeypatch.setattr(click, "confirm", confirm)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: answer is not None)
    assert main(["run", "--", "x"]) == EXIT_INTERRUPTED
    assert asked == ([] if answer is None else [f"\nleave job {JOB} running (Enter or Ctrl-C: yes)?"])
    assert (f"launch stop {JOB}" in master.ran) == stops
    printed = "is stopped" if stops else f"keeps running: dlcluster logs -f {JOB}, dlcluster stop {JOB}"
    assert capfd.readouterr().err.endswith(f"dlcluster: job {JOB} {printed}\n")


def test_lost_connection_is_reported_with_the_job_still_running(
    master: Master, capfd: pytest.CaptureFixture[str]
) -> None:
    set_job_answers(master, end=record())
    master.set_answer("launch status", code=1, stderr="gone")
    assert main(["run", "--no-sync", "--", "x"]) == 1
    assert capfd.readouterr().err.endswith(f"dlcluster: gone; job {JOB} keeps running: dlcluster logs -f {JOB}\n")


def test_ctrl_c_cancels_the_start(
    master: Master, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(master, "output", lambda command, **_: interrupted())
    assert main(["run", "--detach", "--no-sync", "--", "x"]) == EXIT_INTERRUPTED
    printed = "dlcluster: the start was cancelled; dlcluster jobs shows how it ended"
    assert capfd.readouterr().err.strip() == printed


def test_lost_connection_ends_a_job_that_is_starting(tmp_path: Path) -> None:
    launch = tmp_path / "launch"
    launch.write_text(f"#!/bin/sh\ntrap 'kill $!; echo ended > {tmp_path}/end; exit 143' TERM\nsleep 60 & echo; wait\n")
    launch.chmod(0o755)
    line = kill_on_disconnect(["launch", "--detach"])
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    pipe = subprocess.PIPE
    with subprocess.Popen(["bash", "-c", line], env=environment, stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        process.stdin.close()
        assert process.wait(50) == 143
    assert (tmp_path / "end").read_text() == "ended\n"
