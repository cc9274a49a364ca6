"""Warn about what later attempts of a durable job will lack, and build their environment."""

import os
import pwd
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from bootstrap.contract import BUCKET_VARIABLE, ENVIRONMENT_FILE
from launcher.job_records.checkpoints import MODEL_PREFIX, CheckpointLocation, checkpoint_location, is_shared
from launcher.spec import JobSpec

SESSION = re.compile(
    r"_|PWD|OLDPWD|SHLVL|TERM|COLORTERM|COLUMNS|LINES|HOSTNAME|MAIL|EDITOR|PAGER|LESS\w*|LS_COLORS|DISPLAY|TMUX\w*|STY"
    r"|DBUS_\w+|XDG_\w+|SSH_\w+|SUDO_\w+|LC_\w+|LANG\w*|BASH_FUNC_.*|PS[0-9]|MOTD_SHOWN|INVOCATION_ID|JOURNAL_STREAM"
)
"""Variables that belong to a login session rather than to the user."""
LOGIN_TIMEOUT_S = 10.0
"""Timeout for a login shell to print its environment, in seconds."""
MAX_NAMED = 12
"""Largest number of variables named in one line."""


def notes(job: JobSpec, *, cwd: str, environ: Mapping[str, str]) -> list[str]:
    """Return one line for each thing that a new master will lack."""
    lines = []
    lost = variables_not_kept(environ, login_environment())
    if lost:
        more = f" and {len(lost) - MAX_NAMED} more" if len(lost) > MAX_NAMED else ""
        lines.append(
            f"later attempts lack: {', '.join(lost[:MAX_NAMED])}{more} of this shell; keep one by --env KEY=VALUE"
        )
    is_synced = job.sync is not None and job.sync.directory is not None
    if not is_synced and not is_shared(cwd) and cwd != os.environ.get("HOME"):
        lines.append(f"a new master has no {cwd}: --sync-dst-dir DIR keeps its files")
    location = checkpoint_location(job, cwd=cwd, bucket=environ.get(BUCKET_VARIABLE))
    if location is CheckpointLocation.LOCAL:
        lines.append(
            f"this training's checkpoints are on the nodes' disks and go with them: {MODEL_PREFIX} "
            f"s3://$DEEPLEARNING_BUCKET/NAME keeps them"
        )
    elif location is CheckpointLocation.UNKNOWN:
        lines.append(
            "cannot tell where this job keeps its checkpoints: only what is in S3 or the shared directory outlives "
            "the nodes"
        )
    return lines


def variables_not_kept(environ: Mapping[str, str], fresh: Mapping[str, str]) -> list[str]:
    """Return the names of the shell's variables that a new login shell lacks."""
    return sorted(name for name in environ if name not in fresh and not SESSION.fullmatch(name))


def login_environment() -> dict[str, str]:
    """Return the variables of a new login shell of this user; only the basic variables if the shell does not answer."""
    entry = pwd.getpwuid(os.getuid())
    basic = {
        "HOME": os.environ.get("HOME", entry.pw_dir),
        "USER": entry.pw_name,
        "LOGNAME": entry.pw_name,
        "SHELL": entry.pw_shell,
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        **session_variables(),
    }
    try:
        printed = subprocess.run(
            ["/bin/bash", "-lc", "env -0"],
            env=basic,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=LOGIN_TIMEOUT_S,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return basic
    pairs = (entry.partition("=") for entry in printed.decode(errors="surrogateescape").split("\0") if "=" in entry)
    return {**basic, **{name: value for name, _, value in pairs if name not in ("_", "SHLVL", "PWD", "OLDPWD")}}


def session_variables() -> dict[str, str]:
    """Return the variables that PAM gives to a session from /etc/environment; see pam_env(8)."""
    try:
        lines = Path(ENVIRONMENT_FILE).read_text(errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.strip().removeprefix("export ").partition("=") for line in lines if not line.lstrip().startswith("#"))
    return {name.strip(): value.strip().strip("\"'") for name, equals, value in pairs if equals}
