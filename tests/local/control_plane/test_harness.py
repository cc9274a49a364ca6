"""Test that no server of the tests outlives them."""

import sys
import threading
from pathlib import Path

import pytest

from tests.local.control_plane import harness

SHOW_SIGNAL = f"""#!{sys.executable} -S
import ctypes
number = ctypes.c_int()
ctypes.CDLL(None).prctl(2, ctypes.byref(number))
print("listening on 127.0.0.1 port", number.value)
"""
"""Program in place of the server whose port is the number of its signal at the parent's end (PR_GET_PDEATHSIG)."""


def test_server_is_killed_when_its_test_run_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "python"
    program.write_text(SHOW_SIGNAL)
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    server, signal = harness.start_server()
    server.communicate()
    assert signal == 9


def test_server_must_not_depend_on_a_thread_that_may_end() -> None:
    errors: list[str] = []

    def start() -> None:
        with pytest.raises(AssertionError) as error:
            harness.start_server()
        errors.append(str(error.value).partition("\n")[0])

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert errors == ["the server would end with this thread"]
