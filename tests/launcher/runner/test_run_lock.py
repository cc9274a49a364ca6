"""Test that two runs of a job never share a node."""

import fcntl
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.paths import JOBS_DIR
from launcher.runner import run_lock
from launcher.runner.run_lock import acquire_run_lock
from launcher.runner.runner_channel import RunnerChannel
from launcher.spec import NodeSpec

SPEC = NodeSpec(job_id="j", host="n", processes=(), environment={}, peer="127.0.0.1", cwd="/", grace_s=0)


@pytest.fixture
def channel() -> RunnerChannel:
    ours, theirs = socket.socketpair()
    return RunnerChannel(source=ours.detach(), sink=theirs.detach())


def test_run_does_not_start_while_the_previous_one_has_processes(
    tmp_path: Path, channel: RunnerChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_lock, "AFTER_GRACE_S", 0.2)
    lock = tmp_path / JOBS_DIR / "j" / ".n.lock"
    lock.parent.mkdir(parents=True)
    held = os.open(lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)
    assert not acquire_run_lock(SPEC, channel, home=str(tmp_path))
    os.close(held)
    assert acquire_run_lock(replace(SPEC, grace_s=60), channel, home=str(tmp_path))
    assert lock.read_text() == "000000060\n"
