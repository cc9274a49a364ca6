"""Inform the user when a program of the local AWS has ended or a node cannot boot.

A deploy would only wait: CloudFormation gives nodes half an hour to signal.
"""

import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from local.data_plane.launch_failures import read_failures

INTERVAL_S = 1.0


class Monitor:
    """Reports each event once, in one line."""

    def __init__(
        self, run_dir: Path, *, programs: Mapping[str, subprocess.Popen[bytes]], warn: Callable[[str], object]
    ) -> None:
        self._run_dir = run_dir
        self._programs = dict(programs)
        self._warn = warn
        self._reported: set[str] = set()

    def check(self) -> None:
        for name, program in list(self._programs.items()):
            if (code := program.poll()) is not None:
                del self._programs[name]
                what = f"error: the local AWS's {name} exited with code {code}: nodes no longer start or stop"
                self._warn(f"{what}: {self._last_line(name)}")
        for instance_id, reason in read_failures(self._run_dir).items():
            if instance_id not in self._reported:
                self._reported.add(instance_id)
                self._warn(f"warning: {instance_id} does not boot in the local AWS and is terminated: {reason}")

    def _last_line(self, name: str) -> str:
        lines = (self._run_dir / "log" / f"{name}.log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "its log is empty"

    def start(self) -> Callable[[], None]:
        """Start checking every second in the background; return the function that stops it."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(INTERVAL_S):
                self.check()

        thread = threading.Thread(target=watch, name="monitor", daemon=True)
        thread.start()

        def end() -> None:
            ended.set()
            thread.join()

        return end
