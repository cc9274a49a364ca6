"""List a command line for every command, and what it needs, for the tests that run all of them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from cli.main import dlcluster

LINES: Final = {
    "list": "list",
    "status": "status",
    "why": "why",
    "run": "run --no-sync -- true",
    "jobs": "jobs",
    "logs": "logs -f",
    "stop": "stop 2026",
    "push": "push",
    "pull": "pull out",
    "ssh": "ssh -- true",
    "allow-ip": "allow-ip",
    "tunnel": "tunnel master 6006",
    "tensorboard": "tensorboard",
    "jupyter": "jupyter",
    "ssh-config": "ssh-config",
    "known-hosts": "known-hosts",
    "policy": "policy",
    "cost": "cost",
    "pause": "pause --yes",
    "resume": "resume",
    "setup": "setup",
    "check": "check",
    "resize": "resize 3 --yes",
    "extend": "extend 8h --no-deploy",
    "up": "up --yes",
    "bake": "bake --yes",
    "ssm-proxy": "ssm-proxy {cluster} master",
    "delete-bucket": "delete-bucket",
    "delete-storage": "delete-storage",
}
"""Every command except preflight, which reports troubles as its findings, and completion, which calls no AWS."""
ON_MASTER: Final = (
    "run",
    "jobs",
    "logs",
    "stop",
    "push",
    "pull",
    "ssh",
    "tunnel",
    "tensorboard",
    "jupyter",
    "ssh-config",
    "setup",
    "check",
    "bake",
    "ssm-proxy",
)
OF_SETTINGS: Final = ("resize", "extend", "up", "bake")
"""Commands that read ./cdk.json, which names their cluster."""
OF_REGION: Final = ("list", "why", "up", "delete-bucket", "delete-storage")
"""Commands that need no cluster: up makes one, and why also explains stacks that are none."""
NEEDS_A_CLUSTER: Final = [command for command in LINES if command not in OF_REGION]
AMBIGUOUS_WITH_TWO: Final = [command for command in NEEDS_A_CLUSTER if command not in (*OF_SETTINGS, "ssm-proxy")]
"""Commands that take the only cluster of the region if --cluster names none."""


def prepare_command_line(command: str, *, region: str, cluster: str = "two") -> list[str]:
    """Write the cdk.json that a command reads, if it reads one; return its command line as words."""
    if command in OF_SETTINGS:
        settings = {"cluster_name": cluster, "zones": [f"{region}a", f"{region}b"]}
        Path("cdk.json").write_text(json.dumps({"context": {"cluster": settings}}))
    return LINES[command].format(cluster=cluster).split()


def prints_json(command: str) -> bool:
    """Return True if a command has the option ``--json``."""
    declared = dlcluster.get_command(click.Context(dlcluster), command)
    return declared is not None and any("--json" in parameter.opts for parameter in declared.params)


def with_json(words: Sequence[str]) -> list[str]:
    """Add ``--json`` to a command's command line; a job that runs in the foreground has none."""
    command, *rest = words
    return [command, *(["--detach"] if command == "run" else []), "--json", *rest]
