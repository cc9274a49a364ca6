"""Read this node's name, the devices that it has, and those that it should have."""

import json
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

NODE_CONFIG_FILE: Final = "etc/deeplearning/node.json"
"""File with the devices that the node's type has, as the deploy wrote it (bootstrap.config)."""
NODE_STATE_FILE: Final = "run/deeplearning/node.json"
"""File with the node's number, as its agent wrote it."""
EFA_DEVICES: Final = "sys/class/infiniband"
"""Directory with one entry for each Elastic Fabric Adapter and, on some types, for each NVSwitch's adapter.

Same as in bootstrap.health.checks, which the trainer does not import.
"""
EFA_DRIVER: Final = "efa"
"""Name of the driver that distinguishes the two; same as in bootstrap.health.checks."""
NVIDIA_SMI_TIMEOUT_S: Final = 30.0
"""Seconds for nvidia-smi, which hangs when a GPU is lost."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeDevices:
    """A node's name, its devices and the devices that it should have."""

    name: str
    """``master`` or ``worker2``; the host name outside of a cluster."""
    gpus: int = 0
    """Number of GPUs that nvidia-smi lists."""
    expected_gpus: int | None = None
    """Number of GPUs of the instance type; None if unknown."""
    efa: int = 0
    """Number of Elastic Fabric Adapters with a driver."""
    expected_efa: int | None = None
    """Number of Elastic Fabric Adapters with which the node was launched; None if unknown."""


def read_devices(root: Path) -> NodeDevices:
    """Return the devices of the node whose files are below `root`."""
    config, index = _read(root / NODE_CONFIG_FILE), _read(root / NODE_STATE_FILE).get("node_index")
    return NodeDevices(
        name=socket.gethostname() if index is None else "master" if index == 1 else f"worker{index}",
        gpus=count_gpus(_nvidia_smi()),
        expected_gpus=config.get("gpu_count"),
        efa=count_efa_devices(root / EFA_DEVICES),
        expected_efa=config.get("efa_interfaces"),
    )


def count_gpus(listing: str) -> int:
    """Count the GPUs in the output of ``nvidia-smi -L``; MIG partitions are indented below their GPU."""
    return sum(line.startswith("GPU ") for line in listing.splitlines())


def count_efa_devices(directory: Path) -> int:
    """Count the devices below `directory` that the driver of EFA serves."""
    if not directory.is_dir():
        return 0
    return sum((device / "device/driver").resolve().name == EFA_DRIVER for device in directory.iterdir())


def _nvidia_smi() -> str:
    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, check=False, timeout=NVIDIA_SMI_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _read(path: Path) -> Mapping[str, Any]:
    """Return a JSON object; an empty one outside of a cluster, which has no such file."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
