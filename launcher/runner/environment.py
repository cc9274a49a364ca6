"""The environment and directory of a rank."""

import os
from collections.abc import Mapping
from pathlib import Path

from bootstrap.contract import PYTORCH_PYTHON
from launcher.frames import NodeSpec

AGENT_VARIABLE = "SSH_AUTH_SOCK"
INTERFACE_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


def rank_environment(
    spec: NodeSpec,
    local_rank: int,
    *,
    base: Mapping[str, str],
    interface: str | None,
    pytorch_bin: Path = Path(PYTORCH_PYTHON).parent,
) -> dict[str, str]:
    """The node's variables, the route's interface, the job's variables, the rank's: later ones win."""
    # A job must not be able to sign as the user who started it.
    environment = {name: value for name, value in base.items() if name != AGENT_VARIABLE}
    if pytorch_bin.is_dir():
        environment["PATH"] = f"{pytorch_bin}:{base.get('PATH', os.defpath)}"
    if interface is not None:
        environment |= dict.fromkeys(INTERFACE_VARIABLES, interface)
    return environment | spec.environment | spec.ranks[local_rank]


def working_directory(wanted: str, *, home: str) -> str:
    """The launcher's directory where this node has it and lets us in, else the home directory."""
    return wanted if Path(wanted).is_dir() and os.access(wanted, os.X_OK) else home
