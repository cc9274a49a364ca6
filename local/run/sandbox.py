"""Isolate a local AWS in process, mount, network, IPC and host-name namespaces.

However it ends, the kernel then ends every process in it and drops every mount, namespace, link and firewall rule. A
reaper removes what the kernel leaves (the run's directory and its cgroups): a separate process that waits until the
sandbox's parent is gone, so that even a ``kill -9`` leaves nothing behind.
"""

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from local.cache import locked
from local.node.cgroups import remove_cgroup, run_cgroup
from local.run.local_aws import new_name, runs_dir
from local.run.processes import die_with_parent, read_process, record_process, wait_for_exit

log = logging.getLogger(__name__)
REAP_TIMEOUT_S = 240.0
UNSHARE = ("unshare", "--fork", "--pid", "--kill-child=KILL", "--mount-proc", "--mount", "--net", "--ipc", "--uts",
           "--propagation", "private")  # fmt: skip
# As the namespace's first process, bash waits for any child, so that orphans of nodes do not stay as zombies.
FIRST_PROCESS = ("bash", "-c", '"$@"; exit $?', "sandbox")


def remove_run(run_dir: Path) -> None:
    """Remove what the kernel leaves of a run that has ended."""
    remove_cgroup(run_cgroup(run_dir))
    shutil.rmtree(run_dir, ignore_errors=True)


def sweep() -> None:
    """Remove runs whose owner is gone, because their reaper was killed too or the machine went down."""
    for run_dir in runs_dir().glob("*"):
        if read_process(run_dir / "owner") is None:
            remove_run(run_dir)


@contextlib.contextmanager
def run_directory() -> Iterator[Path]:
    """Create a directory for one run; however this process ends, the reaper removes it and the run's cgroups."""
    with locked("run"):  # Another run's sweep must not see the directory before it has an owner.
        sweep()
        run_dir = runs_dir() / new_name()
        run_dir.mkdir(parents=True)
        record_process(run_dir / "owner")
    reader, writer = os.pipe()
    reaper = subprocess.Popen(
        [sys.executable, "-m", "local.run.sandbox", str(run_dir)],
        stdin=reader, start_new_session=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    os.close(reader)
    try:
        yield run_dir
    finally:
        os.close(writer)
        wait_for_exit(reaper, timeout_s=REAP_TIMEOUT_S)


def _reap(run_dir: Path) -> None:
    """Wait until the run's owner is gone, then clean up after it."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    sys.stdin.buffer.read()
    remove_run(run_dir)


def run_in_sandbox(command: Sequence[str], *, run_dir: Path, environment: Mapping[str, str]) -> int:
    """Run a command as the only one in new namespaces; return its exit code.

    SIGINT, SIGTERM and SIGHUP, and the death of this process, immediately end everything in the sandbox.
    """
    process = subprocess.Popen(
        [*UNSHARE, *FIRST_PROCESS, *command],
        env=dict(environment),
        preexec_fn=die_with_parent,
    )

    def stop(signum: int, _frame: FrameType | None) -> None:
        process.kill()
        raise SystemExit(128 + signum)

    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, stop)
    try:
        record_process(run_dir / "sandbox", process.pid)
        code = process.wait()
    finally:
        process.kill()
        process.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    _reap(Path(sys.argv[1]))
