"""``launch [options] COMMAND...``: the launcher's main.

It imports first what the command line takes. Runners that wait on the nodes are then called, and look around there
while the rest is imported here.
"""

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from launcher.cli.options import parse_options
from launcher.errors import LaunchError
from launcher.job.exit_hints import VERBS
from launcher.job.spec import Job
from launcher.transport.pool.pool import open_pool

STANDARD_FDS = (0, 1, 2)


def main(arguments: Sequence[str]) -> int:
    """Run one job, or do what a verb asks; returns the exit code."""
    open_streams()
    keep_to_ourselves()
    try:
        if arguments and arguments[0] in VERBS:
            return run_verb(arguments)
        job = parse_options(arguments, environ=os.environ)
        cwd = working_directory()
        return detach(job, arguments, cwd=cwd) if job.detach else run_here(job, cwd=cwd)
    except LaunchError as error:
        from launcher.job.session import refuse

        return refuse(error)


def run_verb(arguments: Sequence[str]) -> int:
    """Do what a verb asks."""
    import_asyncio()
    from launcher.history.commands import main as verb

    all_is_imported()
    return verb(arguments)


def detach(job: Job, arguments: Sequence[str], *, cwd: str) -> int:
    """Start a detached job."""
    import_asyncio()
    from launcher.detached.detach import detach as start
    from launcher.job.session import tell

    all_is_imported()
    tell(job.notes)
    return start(arguments, cwd=cwd)


def run_here(job: Job, *, cwd: str) -> int:
    """Run a job for this terminal."""
    pool = open_pool(job.hosts, seconds=job.keep_s)
    import_asyncio()
    from launcher.job.session import run

    all_is_imported()
    return run(job, cwd=cwd, pool=pool)


def import_asyncio() -> None:
    """Import it without TLS, which takes a quarter of its time and which nobody here asks it for."""
    if "ssl" not in sys.modules:
        # None is how Python marks what cannot be imported.
        sys.modules["ssl"] = None  # type: ignore[assignment]  # no stub knows of it
        import asyncio  # noqa: F401  (for those who import it next)

        del sys.modules["ssl"]


def all_is_imported() -> None:
    """Let Python look for garbage from now on, but not among modules."""
    gc.freeze()
    gc.enable()


def open_streams() -> None:
    """Let output that the caller closed (``>&-``) go nowhere, and not into the first file that is opened."""
    for fd in STANDARD_FDS:
        try:
            os.fstat(fd)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), fd)


def keep_to_ourselves() -> None:
    """Pass on none of the descriptors that the caller left open: what is kept for the next job outlives this one.

    A lock of flock(1) would be held by it, and the reader of a pipe would wait for it.
    """
    for entry in Path("/proc/self/fd").iterdir():
        fd = int(entry.name)
        with suppress(OSError):  # the directory itself was one of them
            os.set_inheritable(fd, fd in STANDARD_FDS)


def working_directory() -> str:
    """The directory that the ranks start in."""
    try:
        return str(Path.cwd())
    except FileNotFoundError as error:
        raise LaunchError("the current directory no longer exists") from error
