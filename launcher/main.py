"""Run ``launch [options] COMMAND...``; docs/how/launcher.md follows one command file by file.

Startup time matters, so import in two stages: first the modules that parse the command line and wake the idle runners
on the nodes; then the rest, while the runners get ready.
"""

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from launcher.errors import LaunchError
from launcher.options.parser import parse_options
from launcher.spec import JobSpec
from launcher.subcommand_names import SUBCOMMANDS
from launcher.transport.pool.pool import open_pool

STANDARD_FDS = (0, 1, 2)


def main(arguments: Sequence[str]) -> int:
    """Run a job or a subcommand; return the exit code."""
    reopen_closed_standard_streams()
    close_fds_on_exec()
    try:
        if arguments and arguments[0] in SUBCOMMANDS:
            return run_subcommand(arguments)
        job = parse_options(arguments, environ=os.environ)
        cwd = working_directory()
        return start_detached(job, arguments, cwd=cwd) if job.detach else run_attached(job, cwd=cwd)
    except LaunchError as error:
        from launcher.recorded_run import print_refusal

        return print_refusal(error)


def run_subcommand(arguments: Sequence[str]) -> int:
    """Run ``launch list``, ``logs`` or another subcommand."""
    import_asyncio()
    from launcher.subcommands.commands import main as subcommands_main

    enable_gc()
    return subcommands_main(arguments, end_durable=end_durable)


def end_durable(job_id: str) -> None:
    """Close a durable job that ``launch stop`` has ended."""
    from launcher.durable.mirror import close_job

    close_job(job_id)


def start_detached(job: JobSpec, arguments: Sequence[str], *, cwd: str) -> int:
    """Start a job as a systemd unit that outlives this shell."""
    import_asyncio()
    from launcher.detached.detach import detach
    from launcher.recorded_run import print_notes

    enable_gc()
    print_notes(job.notes)
    if job.durable:
        from launcher.durable.submit import submit

        return submit(job, arguments, cwd=cwd)
    return detach(arguments, grace_s=job.grace_s, cwd=cwd)


def run_attached(job: JobSpec, *, cwd: str) -> int:
    """Run a job in this terminal; return its exit code."""
    # Wake the runners that an earlier launch left idle (launcher.transport.pool); a first launch has none.
    pool = open_pool(job.hosts, seconds=job.connection_idle_s)
    import_asyncio()
    from launcher.job_records.key_name import key_name
    from launcher.job_records.recorder import JobRecorder, user_name
    from launcher.job_records.records import new_job_id
    from launcher.recorded_run import print_notes, run_recorded_job, standard_streams

    enable_gc()
    print_notes(job.notes)
    recorder = JobRecorder(job, job_id=new_job_id(), cwd=cwd, started_by=key_name(os.environ, user=user_name()))
    return run_recorded_job(job, recorder=recorder, cwd=cwd, streams=standard_streams(), pool=pool)


def import_asyncio() -> None:
    """Import asyncio without TLS, which accounts for a quarter of its import time and is not used here."""
    if "ssl" not in sys.modules:
        # A module set to None in sys.modules cannot be imported.
        sys.modules["ssl"] = None  # type: ignore[assignment]  # the stubs do not allow it
        import asyncio  # noqa: F401  (loaded for later imports)

        del sys.modules["ssl"]


def enable_gc() -> None:
    """Freeze the modules imported so far, then turn the garbage collector on."""
    gc.freeze()
    gc.enable()


def reopen_closed_standard_streams() -> None:
    """Open /dev/null for standard streams that the caller closed (``>&-``): otherwise files get their descriptors."""
    for fd in STANDARD_FDS:
        try:
            os.fstat(fd)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), fd)


def close_fds_on_exec() -> None:
    """Close inherited descriptors in child processes, because kept connections outlive this process.

    They would otherwise hold the caller's flock(1) locks and keep the write ends of its pipes open.
    """
    for entry in Path("/proc/self/fd").iterdir():
        fd = int(entry.name)
        with suppress(OSError):  # The descriptor used for the listing is already closed.
            os.set_inheritable(fd, fd in STANDARD_FDS)


def working_directory() -> str:
    """Return the current directory, where the ranks start."""
    try:
        return str(Path.cwd())
    except FileNotFoundError as error:
        raise LaunchError("the current directory no longer exists") from error
