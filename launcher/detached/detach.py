"""Start a job as a unit of the user's own systemd, which outlives the login: ``launch --detach``.

See docs/decisions/017-detached-jobs-are-user-units.md.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from bootstrap.contract import FOLLOW_HINT, WAITING_HINT
from launcher.detached.request import DetachedJob, DurableStart
from launcher.errors import LaunchError
from launcher.job_records.key_name import key_name
from launcher.job_records.record_upload import UPLOADS_TIMEOUT_S
from launcher.job_records.recorder import jobs_directory, user_name
from launcher.job_records.records import new_job_id, read_record
from launcher.transport.protocol import AFTER_GRACE_S

UNIT = "deeplearning-job-{job_id}.service"
UNIT_PROGRAM = Path(__file__).parent
LINGER = Path("/var/lib/systemd/linger")
"""Directory with a file for each user whose systemd runs without a login session; see loginctl(1), enable-linger."""
SYSTEMD_MARGIN_S = 10.0
"""Seconds that systemd allows a unit to stop, beyond the launcher's own deadline."""
PROPERTIES = (
    "Type=notify",  # systemd-run returns once the job has started
    "TimeoutStartSec=infinity",
    "KillMode=mixed",  # send TERM only to the launcher, which ends the ranks cleanly
    "OOMPolicy=continue",  # a killed rank is a failure with an exit code, and must not end the unit
)


class _TerminatedError(Exception):
    """SIGTERM arrived while the job was starting."""


def detach(arguments: Sequence[str], *, grace_s: float, cwd: str, durable: DurableStart | None = None) -> int:
    """Run ``launch`` with these arguments as a unit; return once the job has started, or report why it did not.

    `grace_s` is the job's time between SIGTERM and SIGKILL.
    """
    check_writable(jobs_directory())
    check_linger(user_name())
    runtime = runtime_directory()
    job_id = durable.job_id if durable else new_job_id()
    job_file = runtime / f"deeplearning-job-{job_id}.json"
    started_by = key_name(os.environ, user=user_name())
    DetachedJob.of_this_process(arguments, job_id=job_id, cwd=cwd, durable=durable, started_by=started_by).write(
        job_file
    )
    program = [sys.executable or "python3", *(durable.program if durable else (str(UNIT_PROGRAM),)), str(job_file)]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
    stop_s = stop_timeout_s(grace_s)
    try:
        with _sigterm_raises():
            error = _start_unit(job_id, program, stop_s=stop_s, environment=environment)
    except KeyboardInterrupt:
        print(f"launch: job {job_id} starts anyway; to end it: launch stop {job_id}", file=sys.stderr)
        return 128 + signal.SIGINT
    except _TerminatedError:
        _stop_unit(job_id, timeout_s=stop_s + SYSTEMD_MARGIN_S, environment=environment)
        return 128 + signal.SIGTERM
    finally:
        job_file.unlink(missing_ok=True)
    return _report(job_id, error)


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """Raise _TerminatedError on SIGTERM: ``dlcluster run`` was interrupted before its user learned a job id."""

    def terminate(number: int, frame: object) -> NoReturn:
        raise _TerminatedError

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop_unit(job_id: str, *, timeout_s: float, environment: Mapping[str, str]) -> None:
    """Stop the unit, whether it is starting or running. Raises LaunchError."""
    command = ["systemctl", "--user", "stop", UNIT.format(job_id=job_id)]
    try:
        subprocess.run(command, env=dict(environment), stdin=subprocess.DEVNULL, timeout=timeout_s, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise LaunchError(f"job {job_id} may still be running: cannot stop its unit: {error}") from error


def check_writable(directory: Path) -> None:
    """Raise LaunchError if the job could not write a log."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise LaunchError(f"--detach: cannot keep the job's log: {error.filename}: {error.strerror}") from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise LaunchError(f"--detach: cannot keep the job's log: {directory} is not writable")


def check_linger(user: str) -> None:
    """Raise LaunchError if systemd would end the job with the user's last session."""
    if not (LINGER / user).exists():
        raise LaunchError(
            f"--detach: jobs of {user} would end with the last session: first run sudo loginctl enable-linger {user}"
        )


def runtime_directory() -> Path:
    """Return the directory where the user's systemd listens; `su` and cron do not set its variable."""
    path = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}")
    if not (path / "systemd").is_dir():
        raise LaunchError(f"--detach: the systemd of {user_name()} is not running: {path}/systemd does not exist")
    return path


def stop_timeout_s(grace_s: float) -> float:
    """Return the seconds that a launcher may take to end its job, including unresponsive nodes and uploads."""
    return grace_s + 2 * AFTER_GRACE_S + UPLOADS_TIMEOUT_S


def _start_unit(job_id: str, program: Sequence[str], *, stop_s: float, environment: Mapping[str, str]) -> str:
    """Start the unit; return what systemd-run wrote if the job did not start."""
    properties = [word for setting in (*PROPERTIES, f"TimeoutStopSec={stop_s:.0f}") for word in ("--property", setting)]
    unit = UNIT.format(job_id=job_id)
    try:
        ended = subprocess.run(
            ["systemd-run", "--user", "--quiet", "--collect", "--unit", unit, *properties, "--", *program],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            check=False,
            # Ctrl-C must reach only this process.
            start_new_session=True,
        )
    except OSError as error:
        raise LaunchError(f"--detach: cannot run systemd-run: {error.strerror}") from error
    return "" if ended.returncode == 0 else ended.stderr.strip() or f"exit code {ended.returncode}"


def _report(job_id: str, error: str) -> int:
    """Print how to follow the job, or why it did not start."""
    if not error:
        print(job_id)
        record = read_record(jobs_directory() / job_id)
        if record is not None and record.waiting is not None:
            print(f"{WAITING_HINT} {record.waiting}", file=sys.stderr)
        print(f"{FOLLOW_HINT} launch logs -f {job_id}", file=sys.stderr)
        return 0
    record = read_record(jobs_directory() / job_id)
    if record is None or record.reason is None:
        raise LaunchError(f"job {job_id} did not start: {error.splitlines()[0]}")
    print(f"launch: {record.reason}", file=sys.stderr)
    return record.exit_code or 1
