"""Test one runner's process, as the launcher starts and ends it."""

import asyncio
import json
import logging
import os
import sys

import pytest

from launcher.errors import LaunchError
from launcher.hosts.hostfile import Host
from launcher.transport.connection import RunnerConnection
from launcher.transport.protocol import HEADER, PREAMBLE, FrameType

READY = json.dumps({"port": 1, "address": None}).encode()
ANSWERS = PREAMBLE + HEADER.pack(FrameType.READY, 0, len(READY)) + READY
RUNNER = f"import sys; sys.stdout.buffer.write({ANSWERS!r}); sys.stdout.flush(); sys.stdin.read(); sys.exit(3)"


def test_killing_a_runner_that_has_just_ended_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def end() -> int | None:
        connection = await RunnerConnection.open(Host(name="node"), [sys.executable, "-c", RUNNER], timeout_s=60)
        connection.request_stop()
        await asyncio.sleep(0)
        # It has ended, but nobody has reaped it.
        os.waitid(os.P_PIDFD, connection._process._pidfd, os.WEXITED | os.WNOWAIT)
        assert connection._process.returncode is None
        await connection.kill()
        return connection._process.returncode

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(end()) == 3
    assert caplog.records == []


def test_output_of_another_program_is_the_reason_for_the_error() -> None:
    spoken = """echo 'Please login as the user "ubuntu".'; echo; exit 142"""
    with pytest.raises(LaunchError) as caught:
        asyncio.run(RunnerConnection.open(Host(name="node"), ["bash", "-c", spoken], timeout_s=60))
    assert str(caught.value) == 'node: Please login as the user "ubuntu".'
