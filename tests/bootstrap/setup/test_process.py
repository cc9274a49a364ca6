"""Run real programs as a setup does: they fail, hang, print very much, or leave other processes behind."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bootstrap.errors import SetupError
from bootstrap.setup.process import MAX_LINE, run_program

pytestmark = pytest.mark.allow_subprocess
ENVIRON = {"PATH": os.environ["PATH"]}


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., list[str]]:
    """Run a script to its end; return its lines. With ``until``, the deadline is when it has printed that."""

    def run(script: str, *, until: str | None = None) -> list[str]:
        message: list[str] = []
        run_program(
            ["bash", "-c", script],
            cwd=tmp_path,
            environ=ENVIRON,
            deadline=time.monotonic() + 60.0,
            write_line=message.append,
            on_poll=lambda: None,
            monotonic=lambda: time.monotonic() + (60.0 if until in message else 0.0),
        )
        return message

    return run


def test_output_and_errors_come_line_by_line_and_printable(run: Callable[..., list[str]]) -> None:
    script = r"pwd; printf '\033[31mred\033[0m\r50%%\r' >&2; printf 'beep\a\n\nlast'; test -z \"$(cat)\""
    [_, *lines] = run(script.replace('\\"', '"'))
    assert lines == ["red", "50%", "beep", "last"]


@pytest.mark.parametrize(
    ("script", "short"),
    [
        ("echo one; echo 'E: no package foo' >&2; echo; exit 3", "E: no package foo"),
        ("exit 3", "exit code 3"),
        ("echo 'ERROR: No matching distribution found for humanize==9'; false", "pip finds no humanize==9"),
        ("kill -KILL $$", "signal 9"),
        ("echo caf\N{LATIN SMALL LETTER E WITH ACUTE}; false", "caf?"),
    ],
)
def test_failed_program_reports_its_last_line(run: Callable[..., list[str]], script: str, short: str) -> None:
    with pytest.raises(SetupError) as raised:
        run(script)
    assert raised.value.short == short
    assert "\n" not in str(raised.value)


def test_program_that_cannot_start_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"cannot start /none/setup\.sh: No such file"):
        run_program(
            ["/none/setup.sh"],
            cwd=tmp_path,
            environ={},
            deadline=0.0,
            write_line=lambda _: None,
            on_poll=lambda: None,
        )


def test_timeout_kills_the_process_group(
    run: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # SIGTERM is ignored, so SIGKILL must follow.
    monkeypatch.setattr("bootstrap.setup.process.KILL_AFTER_S", 0.3)
    hang = "trap '' TERM; (trap '' TERM; sleep 600) & echo $! > child; echo $$ > parent; echo waiting; wait; sleep 600"
    with pytest.raises(SetupError, match="exceeded its deadline and was killed"):
        run(hang, until="waiting")
    for name in ("parent", "child"):
        wait_for_end(int((tmp_path / name).read_text()))


def wait_for_end(process_id: int) -> None:
    """Wait until a process has ended; the kernel takes a moment to end a killed one."""
    deadline = time.monotonic() + 60.0
    while is_running(process_id):
        assert time.monotonic() < deadline, f"process {process_id} still runs after 60 s"
        time.sleep(0.01)


def is_running(process_id: int) -> bool:
    """Return True if a process is running; a zombie is not."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_processes_left_by_a_program_are_killed_and_do_not_block(run: Callable[..., list[str]], tmp_path: Path) -> None:
    assert run("sleep 600 & echo $! > child; echo done") == ["done"]
    wait_for_end(int((tmp_path / "child").read_text()))
    # A process of another group keeps the output open; systemd ends it with the service. The run has 60 s.
    try:
        away = "setsid sh -c 'touch there; exec sleep 600' & echo $! > away"
        assert run(f"{away}; until [ -e there ]; do sleep 0.05; done; echo done") == ["done"]
        assert is_running(int((tmp_path / "away").read_text()))
    finally:
        os.kill(int((tmp_path / "away").read_text()), signal.SIGKILL)


def test_large_output_is_streamed_completely_in_little_memory(run: Callable[..., list[str]]) -> None:
    lines = run("seq 20000; head -c 1000000 /dev/zero | tr '\\0' x")
    assert lines[:20000] == [str(number) for number in range(1, 20001)]
    assert sum(map(len, lines[20000:])) == 1_000_000
    assert max(map(len, lines)) == MAX_LINE
