"""Test a runner between two jobs, with pipes to represent the launcher."""

import os
from pathlib import Path

import pytest

from launcher.runner.between_jobs import report_idle, session_fingerprint, wait_for_wake
from launcher.runner.runner_channel import RunnerChannel
from launcher.transport.protocol import HEARTBEAT, WAKE, FrameType, encode


@pytest.mark.parametrize(
    ("output", "is_called"),
    [(WAKE, True), (HEARTBEAT * 3 + WAKE, True), (b"", False), (b"{}\n", False), (WAKE + b"x", False)],
)
def test_idle_runner_takes_a_job_only_after_a_wake_message(output: bytes, is_called: bool) -> None:
    (source, sends), (reads, sink) = os.pipe(), os.pipe()
    os.write(sends, output)
    if not output:
        os.close(sends)
    assert wait_for_wake(RunnerChannel(source=source, sink=sink), seconds=20) is is_called
    os.close(sink)
    assert os.read(reads, 64) == b""


def test_report_idle_fails_without_a_reader() -> None:
    reads, sink = os.pipe()
    assert report_idle(sink=sink)
    assert os.read(reads, 64) == encode(FrameType.IDLE, b"")
    os.close(reads)
    assert not report_idle(sink=sink)


def test_idle_runner_stops_waiting_at_its_deadline() -> None:
    (source, _), (_, sink) = os.pipe(), os.pipe()
    assert not wait_for_wake(RunnerChannel(source=source, sink=sink), seconds=0.01)


@pytest.mark.parametrize("name", [".bashrc", ".profile", ".pam_environment", ".ssh/rc", ".ssh/environment"])
def test_changed_login_file_changes_the_session_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    place = tmp_path / name
    place.parent.mkdir(exist_ok=True)
    before = session_fingerprint()
    (tmp_path / "checkpoint").touch()
    assert session_fingerprint() == before
    place.touch()
    there = session_fingerprint()
    assert there != before
    place.write_text("export A=1\n")
    assert session_fingerprint() != there


@pytest.mark.parametrize("name", ["/etc/passwd", "/etc/environment", "/etc/profile.d", "/etc/security", "/etc/ssh"])
def test_machines_own_files_are_in_the_fingerprint(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    before = session_fingerprint()
    stat = os.stat

    def changed(place: str, **options: bool) -> os.stat_result:
        found = stat(place, **options)
        return os.stat_result((found.st_mode ^ 0o1, *found[1:])) if str(place).startswith(name) else found

    monkeypatch.setattr(os, "stat", changed)
    assert session_fingerprint() != before
