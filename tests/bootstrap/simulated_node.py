"""Simulate a node for the agent's tests: its configuration, its clock, and the system around its agent."""

import json
import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bootstrap.agent import Agent
from bootstrap.cluster.termination_notice import InstanceMetadata, TerminationNotice
from bootstrap.config import NodeConfig, parse_config
from bootstrap.errors import MetadataError
from bootstrap.files.paths import under_root
from tests.bootstrap.identities import NETWORKS, public_key

REGION = "eu-west-1"
CLUSTER = "digits"
TABLE = "digits-table"
LOG_GROUP = "digits-logs"
STACK = "digits-stack"


def config_values(node_type: str = "worker") -> dict[str, Any]:
    return {
        "version": 1,
        "cluster_name": CLUSTER,
        "region": REGION,
        "node_type": node_type,
        "group": f"{CLUSTER}-{node_type}",
        "stack_id": STACK,
        "signal_resource": f"{node_type.title()}Group",
        "fails_deploy": True,
        "min_nodes": None,
        "master_trains": True,
        "gpu_count": None,
        "worker_gpu_count": None,
        "efa_interfaces": 0,
        "address": None,
        "address_allocation": None,
        "table": TABLE,
        "networks": ",".join(map(str, NETWORKS)),
        "log_group": LOG_GROUP,
        "bucket": "bucket",
        "master_role_id": "AROAMASTER",
        "worker_role_id": "AROAWORKER",
        "mxnet_environment": None,
        "shared_storage": None,
        "shared_storage_resource": None,
        "setup": None,
        "setup_sha256": None,
        "setup_timeout_s": None,
        "default_user": pwd.getpwuid(os.getuid()).pw_name,
        "bootstrap_timeout_s": 600,
    }


def node_config(node_type: str = "worker", **settings: object) -> NodeConfig:
    return parse_config(json.dumps(config_values(node_type) | settings))


@dataclass
class Clock:
    """A clock that only the test advances."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class RecordedSystem:
    """Record the commands to systemd and sshd."""

    environment: dict[str, str] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    def set_environment(self, values: Mapping[str, str]) -> None:
        self.environment.update(values)
        self.calls.append("set-environment")

    def reload_sshd(self) -> None:
        self.calls.append("reload-sshd")

    def end_logins(self, names: Mapping[str, str]) -> None:
        self.calls.append(f"end-logins {' '.join(sorted(names))}")

    def make_key(self, file: Path, *, comment: str) -> None:
        file.write_text(f"private half of {comment}\n")
        key = public_key(f"{len(self.calls)} {comment}")
        file.with_name(f"{file.name}.pub").write_text(f"{key} {comment}\n")
        self.calls.append("make-key")


@dataclass
class Metadata:
    """The answers of one node's metadata service; an exception while it is down."""

    public_address: str | None = None
    notice: TerminationNotice | MetadataError = field(default_factory=TerminationNotice)

    def __call__(self) -> InstanceMetadata:
        if isinstance(self.notice, MetadataError):
            raise self.notice
        return InstanceMetadata(public_address=self.public_address, notice=self.notice)


@dataclass(kw_only=True)
class SimulatedNode:
    """An agent with its own root, as on its own machine."""

    instance_id: str
    address: str
    root: Path
    host_key: str
    system: RecordedSystem
    clock: Clock
    agent: Agent
    metadata: "Metadata"

    def text(self, path: str) -> str:
        return under_root(self.root, path).read_text()
