"""Render the ``DEEPLEARNING_*`` variables for login shells, for PAM sessions and for systemd."""

import shlex
from collections.abc import Mapping

from bootstrap.contract import (
    BUCKET_VARIABLE,
    GPU_COUNT_VARIABLE,
    INSTANCE_ID_VARIABLE,
    SCRATCH_VARIABLE,
    WORKERS_COUNT_VARIABLE,
    WORKERS_FILE,
    WORKERS_PATH_VARIABLE,
)


def variables(
    *, workers_count: int, gpu_count: int, bucket: str, instance_id: str, scratch: str | None
) -> dict[str, str]:
    """Return the variables that every process on a node sees; ``scratch`` is None on a node without local disks."""
    values = {
        WORKERS_PATH_VARIABLE: WORKERS_FILE,
        # Counts the master, as deeplearning-cfn did; the setting worker_count does not.
        WORKERS_COUNT_VARIABLE: str(workers_count),
        GPU_COUNT_VARIABLE: str(gpu_count),
        BUCKET_VARIABLE: bucket,
        INSTANCE_ID_VARIABLE: instance_id,
    }
    return values if scratch is None else {**values, SCRATCH_VARIABLE: scratch}


def profile_script(values: Mapping[str, str]) -> str:
    """Render the script for /etc/profile.d."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())


def environment_lines(values: Mapping[str, str]) -> str:
    """Render lines for /etc/environment, unquoted: pam_env reads it, not a shell."""
    return "".join(f"{name}={value}\n" for name, value in values.items())


def systemd_environment(values: Mapping[str, str]) -> str:
    """Render a drop-in for the system manager; the variables of other drop-ins stay in effect."""
    pairs = " ".join(f'"{name}={value}"' for name, value in values.items())
    return f"[Manager]\nDefaultEnvironment={pairs}\n"
