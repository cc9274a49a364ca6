"""Define the ``DEEPLEARNING_*`` variables, and render them for login shells, PAM sessions and systemd.

To add a variable, add a row to VARIABLES: the nodes write it, unless its value is None (the user sets it), and
docs/reference/variables.md describes it. The contract contains only the names that other packages read.
"""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from bootstrap.contract import (
    BUCKET_VARIABLE,
    CONNECTION_IDLE_VARIABLE,
    EFS_MOUNT_VARIABLE,
    GPU_COUNT_VARIABLE,
    SHARED_VARIABLE,
    WORKERS_COUNT_VARIABLE,
    WORKERS_FILE,
    WORKERS_PATH_VARIABLE,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class VariableInputs:
    """Values from which a node's variables are computed."""

    workers_count: int
    """Number of nodes in the workers file. As in deeplearning-cfn, this includes the master, unless it does not train.
    The setting worker_count excludes it."""
    gpu_count: int
    bucket: str
    instance_id: str
    scratch: str | None
    """Directory on the local disks; None on a node without any."""
    shared: str | None
    """Directory that all nodes share; None in a cluster without shared storage."""


class Variable(NamedTuple):
    """An environment variable of this product, which the agent sets on a node unless ``value`` returns None."""

    name: str
    meaning: str
    """One line for the reference page."""
    value: Callable[[VariableInputs], str | None]
    """Function that returns the value on a node; None leaves the variable unset."""


VARIABLES: Final = (
    Variable(
        WORKERS_PATH_VARIABLE,
        "path of the workers file: one host name per line, in index order",
        lambda node: WORKERS_FILE,
    ),
    Variable(
        WORKERS_COUNT_VARIABLE,
        "number of nodes in the workers file, including a master that trains",
        lambda node: str(node.workers_count),
    ),
    Variable(
        GPU_COUNT_VARIABLE,
        "number of GPUs of this node, 0 without GPUs; on a master that does not train, the number of each worker",
        lambda node: str(node.gpu_count),
    ),
    Variable(BUCKET_VARIABLE, "name of the cluster's S3 bucket", lambda node: node.bucket),
    Variable("DEEPLEARNING_INSTANCE_ID", "EC2 ID of this instance", lambda node: node.instance_id),
    Variable(
        "DEEPLEARNING_SCRATCH",
        "directory on the node's own NVMe disks, lost with the node; unset on types without them",
        lambda node: node.scratch,
    ),
    Variable(
        SHARED_VARIABLE,
        "`/shared`, the directory that all nodes share; unset without `shared_storage`",
        lambda node: node.shared,
    ),
    Variable(EFS_MOUNT_VARIABLE, "the same directory, by its name in deeplearning-cfn", lambda node: node.shared),
    Variable(
        CONNECTION_IDLE_VARIABLE,
        "set it yourself: seconds for which `launch` keeps connections for the next job; 0 keeps none",
        lambda node: None,
    ),
)


def variables(node: VariableInputs) -> dict[str, str]:
    """Return the variables of a node, by name."""
    values = {variable.name: variable.value(node) for variable in VARIABLES}
    return {name: value for name, value in values.items() if value is not None}


def profile_script(values: Mapping[str, str]) -> str:
    """Render the script for /etc/profile.d."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())


def environment_lines(values: Mapping[str, str]) -> str:
    """Render unquoted lines for /etc/environment, which pam_env reads and not a shell."""
    return "".join(f"{name}={value}\n" for name, value in values.items())


def systemd_environment(values: Mapping[str, str]) -> str:
    """Render a drop-in for the system manager; variables of other drop-ins stay in effect."""
    pairs = " ".join(f'"{name}={value}"' for name, value in values.items())
    return f"[Manager]\nDefaultEnvironment={pairs}\n"
