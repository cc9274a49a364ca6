"""Test how a web application runs on the master: its secret, its end, and the message if it cannot run."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.commands.access.jupyter import _redirect
from cli.errors import ClusterError
from cli.ssh.web_app import PROBE, WebApp, _parse_probe, app_script
from tests.waiting import wait_until

SECRET = "0123abcd"
END_S = 60
APP = """\
import os, subprocess, sys, time
child = subprocess.Popen(["sleep", "600"])
print(os.environ["TOKEN"], os.environ["VIRTUAL_ENV"], os.environ["PATH"].split(":")[0], sys.argv[1:], flush=True)
print(os.getpid(), child.pid, flush=True)
time.sleep(600)
"""
LAB = WebApp(module="lab", package="lab==1", arguments=(), local_port=1)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with an environment."""
    (tmp_path / "my venv/bin").mkdir(parents=True)
    (tmp_path / "my venv/bin/python").symlink_to(sys.executable)
    return tmp_path


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(home: Path) -> Iterator[Start]:
    processes: list[subprocess.Popen[str]] = []

    def start(*, heartbeat_timeout_s: int) -> "subprocess.Popen[str]":
        command = [
            "bash",
            "-c",
            app_script(heartbeat_timeout_s=heartbeat_timeout_s, grace_s=1),
            "bash",
            "my venv",
            "TOKEN",
            "-c",
            APP,
            "x y",
        ]
        pipe = subprocess.PIPE
        processes.append(subprocess.Popen(command, cwd=home, stdin=pipe, stdout=pipe, stderr=pipe, text=True))
        return processes[-1]

    yield start
    for process in processes:
        process.communicate(timeout=END_S)


def write_line(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def read_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def wait_for_end(pids: list[int]) -> None:
    wait_until(lambda: all(map(is_zombie, pids)), "the end of application and child", timeout_s=END_S, every_s=0.02)


def is_zombie(pid: int) -> bool:
    """Return True if a process has ended, even if nobody has waited for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_secret_is_passed_by_variable_and_end_of_input_stops_the_app(start: Start, home: Path) -> None:
    process = start(heartbeat_timeout_s=30)
    write_line(process, SECRET)
    assert read_line(process) == f"{SECRET} {home}/my venv {home}/my venv/bin ['x y']"
    pids = [int(word) for word in read_line(process).split()]
    assert all(SECRET.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in (*pids, process.pid))
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None
    wait_for_end(pids)


def give_signs(process: "subprocess.Popen[str]", *, heartbeat_timeout_s: int) -> list[int]:
    """Give signs for longer than the silence; return the processes that run then, none if a sign came too late."""
    try:
        write_line(process, SECRET)
        read_line(process)
        pids = [int(word) for word in read_line(process).split()]
        for _ in range(6):
            time.sleep(heartbeat_timeout_s / 4)
            write_line(process, "")
    except BrokenPipeError:
        return []
    return [pid for pid in pids if not is_zombie(pid)]


def test_web_app_ends_without_heartbeats_of_its_command(start: Start) -> None:
    for heartbeat_timeout_s in (1, 8):
        pids = give_signs(start(heartbeat_timeout_s=heartbeat_timeout_s), heartbeat_timeout_s=heartbeat_timeout_s)
        if pids:
            break
        # Starting Python may take longer than the silence, so try again with more.
    assert len(pids) == 2
    wait_for_end(pids)


def test_application_that_is_still_starting_ends_with_the_input(start: Start, home: Path) -> None:
    slow = home / "my venv/bin/setsid"
    slow.write_text(f'#!/bin/sh\nsleep 0.5\nexec {shutil.which("setsid")} "$@"\n')
    slow.chmod(0o755)
    process = start(heartbeat_timeout_s=30)
    write_line(process, SECRET)
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None
    assert process.wait(END_S) == 128 + 15


def test_web_app_fails_without_a_secret(start: Start) -> None:
    process = start(heartbeat_timeout_s=1)
    assert process.wait(END_S) != 0
    assert read_line(process) == ""


def probe(module: str, directory: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run([sys.executable, "-c", PROBE, module, directory], capture_output=True, check=False)


def test_master_names_a_free_port(tmp_path: Path) -> None:
    found = probe("json", str(tmp_path))
    port, has_directory = _parse_probe(found.returncode, found.stdout, "", LAB, environment="/e")
    assert (port > 1023, has_directory) == (True, True)
    found = probe("json", str(tmp_path / "runs"))
    assert not _parse_probe(found.returncode, found.stdout, "", LAB, environment="/e")[1]


@pytest.mark.parametrize(
    ("environment", "python"), [("/opt/pytorch", "sudo /opt/pytorch/bin/python"), ("e", "e/bin/python")]
)
def test_web_app_fails_without_its_package(environment: str, python: str) -> None:
    """The image's environment may be writable for root only."""
    found = probe("no_such_module", ".")
    with pytest.raises(ClusterError) as raised:
        _parse_probe(found.returncode, found.stdout, found.stderr.decode(), LAB, environment=environment)
    assert str(raised.value) == (
        f"{environment} on the master has no lab; "
        f"install it with dlcluster ssh -- {python} -m pip install lab==1, "
        "or choose another environment with --venv; "
        "docs/use/environment.md#packages-without-internet is for nodes without internet"
    )


@pytest.mark.parametrize(
    ("code", "stdout", "stderr", "message"),
    [
        (
            127,
            b"",
            "bash: line 1: x/bin/python: No such file\n",
            "cannot run x/bin/python on the master: bash: line 1: ",
        ),
        (1, b"", "", "cannot run x/bin/python on the master: exit code 1"),
        (0, b"99999 1\n", "", r"the master should print a free port, got b'99999 1\\n'"),
        (0, b"-oProxyCommand=x 1\n", "", "the master should print a free port, got b'-oProxy"),
        (0, b"", "", "the master should print a free port, got b''; its shell start-up files must print nothing"),
    ],
)
def test_answer_without_a_free_port_is_reported(code: int, stdout: bytes, stderr: str, message: str) -> None:
    with pytest.raises(ClusterError, match=f"^{message}"):
        _parse_probe(code, stdout, stderr, LAB, environment="x")


def test_only_the_user_can_read_the_page_with_the_token() -> None:
    with _redirect("http://127.0.0.1:8888/", SECRET) as page:
        assert f"url=http://127.0.0.1:8888/lab?token={SECRET}" in page.read_text()
        assert page.parent.stat().st_mode & 0o777 == 0o700
        assert page.stat().st_uid == os.getuid()
    assert not page.parent.exists()
