"""Launch jobs on three nodes that are this machine, and find the processes that they start."""

import os
import re
import select
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

LAUNCHER = Path(__file__).parents[2] / "launcher"
ADDRESSES = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
"""Addresses of the nodes: the first is this machine, and the launcher reaches the others by ssh."""


@dataclass(frozen=True, kw_only=True)
class LoopbackCluster:
    """Three nodes, and the environment of a user on the first."""

    directory: Path
    environment: dict[str, str]
    launcher: Path = LAUNCHER
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Value of a variable that every rank has, so that strays can be found from outside."""

    def write_hosts_file(self, hosts: Sequence[str]) -> Path:
        path = self.directory / f"hosts-{'-'.join(host.replace(' ', '_') for host in hosts)}"
        path.write_text("".join(f"{host}\n" for host in hosts))
        return path

    def write_program(self, name: str, script: str) -> Path:
        """Write a shell script that shadows another program of its name on PATH."""
        path = self.directory / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def path_with_ssh(self, nodes: Path, settings: str) -> str:
        """Return a PATH with an ssh whose configuration begins with other settings: ssh takes the first of several."""
        config = self.directory / "ssh_config"
        config.write_text(settings + (nodes / "ssh_config").read_text().replace("Host 127.*", "Host *"))
        ssh = self.write_program("ssh", f'exec /usr/bin/ssh -F {config} "$@"')
        return f"{ssh.parent}:{self.environment['PATH']}"

    def _command(self, arguments: Sequence[str], hosts: Sequence[str], *, token: str) -> list[str]:
        options = ["-H", str(self.write_hosts_file(hosts)), "--env", f"STRAY_TOKEN:{token}"]
        # The tests themselves may run under nohup or in the background.
        defaults = ["env", "--default-signal=HUP,INT"]
        return [*defaults, sys.executable, str(self.launcher), *options, *arguments]

    @contextmanager
    def start(
        self,
        *arguments: str,
        hosts: Sequence[str] = ADDRESSES,
        cwd: Path | None = None,
        environment: dict[str, str] | None = None,
    ) -> Iterator[subprocess.Popen[bytes]]:
        token = f"{self.token}-{uuid.uuid4().hex}"
        with subprocess.Popen(
            self._command(arguments, hosts, token=token),
            env=self.environment | (environment or {}),
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as launcher:
            try:
                yield launcher
            finally:
                if launcher.poll() is None:
                    # Its nodes notice, and end what runs there, a moment later. Other launches may go on.
                    cut_off = ranks_with(token)
                    launcher.kill()
                    wait_until_gone(cut_off, seconds=60)

    def run(
        self,
        *arguments: str,
        hosts: Sequence[str] = ADDRESSES,
        cwd: Path | None = None,
        environment: dict[str, str] | None = None,
        timeout: float = 120,
    ) -> "Result":
        with self.start(*arguments, hosts=hosts, cwd=cwd, environment=environment) as process:
            stdout, stderr = process.communicate(timeout=timeout)
            return Result(code=process.returncode, stdout=stdout, stderr=stderr)

    def ranks(self) -> list[int]:
        """Return the process ids of everything that has a rank's environment, except the runners."""
        return ranks_with(self.token)


def ranks_with(token: str) -> list[int]:
    """Return the process ids of the ranks of all launches whose token begins like this."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in pids if f"STRAY_TOKEN={token}".encode() in variables(pid)]


@dataclass(frozen=True, kw_only=True)
class Result:
    """The end of a launch."""

    code: int
    stdout: bytes
    stderr: bytes

    @property
    def lines(self) -> list[str]:
        return sorted(self.stdout.decode().splitlines())

    @property
    def reason(self) -> str:
        return self.stderr.decode().splitlines()[-1]


def read_lines(stream: IO[bytes] | None, count: int) -> list[str]:
    """Read the next lines, sorted, as nodes answer in any order."""
    assert stream is not None
    return sorted(stream.readline().decode().rstrip("\n") for _ in range(count))


def launcher_lines(stderr: bytes) -> list[str]:
    """Return the launcher's own lines."""
    return [line for line in stderr.decode().splitlines() if line.startswith("launch: ")]


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def variables(pid: int) -> bytes:
    """Return a process's environment as in proc_pid_environ(5); empty without one.

    It is also empty while the process executes another program, and so is its command line.
    """
    until, empty = time.monotonic() + 20, 0
    with suppress(OSError):
        while empty < 10 and time.monotonic() < until:
            empty += bool(Path(f"/proc/{pid}/cmdline").read_bytes())
            if found := Path(f"/proc/{pid}/environ").read_bytes():
                return found
            # Kernel threads and zombies have no program.
            Path(f"/proc/{pid}/exe").readlink()
            time.sleep(0.005)
    return b""


def wait_until_gone(pids: Sequence[int], *, seconds: float) -> None:
    """Wait until all of the processes have ended; fail at the deadline."""
    until = time.monotonic() + seconds
    for pid in pids:
        try:
            ended = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        readable, _, _ = select.select([ended], [], [], max(0.0, until - time.monotonic()))
        os.close(ended)
        assert readable, f"process {pid} still runs after {seconds} s"


SHORT_HEARTBEAT_TIMEOUT_S = 7.0
SHORT_GRACE_S = 1.0


def copy_launcher(directory: Path) -> Path:
    """Copy the launcher to a directory, where a test may change it."""
    for package in ("launcher", "bootstrap"):
        shutil.copytree(LAUNCHER.parent / package, directory / package, ignore=shutil.ignore_patterns("__pycache__"))
    return directory / "launcher"


def change_constants(launcher: Path, values: Mapping[str, object]) -> None:
    """Change constants in a copy of the launcher; a key is a module's path, a dot, and the constant's name."""
    for place, value in values.items():
        module, _, name = place.rpartition(".")
        path = launcher / f"{module}.py"
        text = path.read_text()
        (line,) = re.findall(rf"^{name}(?:: Final)? = .*$", text, re.MULTILINE)
        path.write_text(text.replace(line, f"{name} = {value!r}"))
