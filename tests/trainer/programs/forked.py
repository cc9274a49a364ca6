"""Fork ranks from a server that has loaded torch, which would take each rank three seconds of a core.

The server loads nothing of the trainer: a rank runs the complete program from ``__main__``, like ``python -m trainer``,
and receives signals in the same way.
"""

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

READ_AT_START: Final = ("PYTHON", "LD_", "OMP_", "MKL_", "OPENBLAS_", "TORCH_")
"""Prefixes of variables that Python or a library reads when it is loaded, which is too late after the fork."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.trainer.programs.preloaded"])


def can_run(program: Sequence[str], variables: Mapping[str, str]) -> bool:
    """Return True if the program can be forked; a test of Python's own start needs a new process."""
    return (program[0] == "-m" or program[0].endswith(".py")) and not any(map(_is_read_at_start, variables))


def _is_read_at_start(variable: str) -> bool:
    return variable.startswith(READ_AT_START)


class Forked:
    """The part of subprocess.Popen that the tests use."""

    def __init__(
        self,
        program: Sequence[str],
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        cwd: Path,
        out: Path,
        log: Path,
    ) -> None:
        for path in (out, log):
            path.write_bytes(b"")
        self._process = _context.Process(
            target=_run, args=([*program], [*arguments], {**environment}, cwd, out, log), daemon=True
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(str(self._process), timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(
    program: list[str], arguments: list[str], environment: dict[str, str], cwd: Path, out: Path, log: Path
) -> None:
    """Become ``python PROGRAM ARGUMENTS`` in ``cwd`` (Python's documentation, "Command line and environment")."""
    for path, descriptor in ((out, 1), (log, 2)):
        with path.open("ab") as file:
            os.dup2(file.fileno(), descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.argv = [program[-1], *arguments]
    sys.path[:0] = [environment["PYTHONPATH"]]
    if program[0] == "-m":
        sys.path.insert(0, str(cwd))
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(program[0]).parent))
        runpy.run_path(program[0], run_name="__main__")
