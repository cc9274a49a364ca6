"""Build a network with a router, its firewall, nodes, and the servers of file systems, in namespaces of their own."""

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from local.data_plane.firewall import render_rules
from local.network import vpc_network
from local.network.addresses import NAME_SERVER_ADDRESS
from local.node.inventory import Instance, Inventory, SecurityGroup, SecurityGroupRule
from local.storage.client_install import EXPORTS
from local.storage.exports import Exports
from local.storage.mount_targets import MountTarget

REPOSITORY: Final = Path(__file__).parents[3]
VPC: Final = "vpc-1"
FILE: Final = "of-all-nodes"
"""File in each file system that is served."""


def tcp(first: int, last: int) -> SecurityGroupRule:
    return SecurityGroupRule(protocol="tcp", from_port=first, to_port=last, cidrs=("10.0.0.0/24",), group_ids=())


def group(name: str, *ingress: SecurityGroupRule) -> SecurityGroup:
    return SecurityGroup(group_id=name, vpc_id=VPC, ingress=ingress, egress=(tcp(0, 65535),))


@dataclass(frozen=True, kw_only=True, slots=True)
class MountOutcome:
    """Result of one attempt to mount."""

    printed: str
    """Errors that the mount helper printed."""
    exit_code: int
    files: list[str]
    """Names of the files that the mount point then has."""
    took_s: float


def mount_with(helper: Callable[[list[str]], int], source: str, mount_point: Path, *, options: str) -> MountOutcome:
    """Create a mount point and mount there with a mount helper, as mount(8) calls it."""
    mount_point.mkdir()
    began = time.monotonic()
    with contextlib.redirect_stderr(io.StringIO()) as printed:
        code = helper([source, str(mount_point), "-o", options])
    took_s = time.monotonic() - began
    files = [path.name for path in mount_point.iterdir()]
    return MountOutcome(printed=printed.getvalue(), exit_code=code, files=files, took_s=took_s)


def print_outcomes(outcomes: Mapping[str, MountOutcome]) -> None:
    """Print the outcome of each case as JSON."""
    print(json.dumps({case: asdict(outcome) for case, outcome in outcomes.items()}), flush=True)


def _parse_outcomes(printed: str) -> dict[str, MountOutcome]:
    return {case: MountOutcome(**fields) for case, fields in json.loads(printed).items()}


def outcomes_in(module: str, directory: Path) -> dict[str, MountOutcome]:
    """Run a module in namespaces of its own; return the outcome of each case, which it prints."""
    command = ["unshare", "--net", "--mount", sys.executable, "-m", module, str(directory)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return _parse_outcomes(done.stdout)


def outcomes_on(instance_id: str, module: str, directory: Path) -> dict[str, MountOutcome]:
    """Run a module in a node's network; return the outcome of each case, which it prints."""
    command = ["ip", "netns", "exec", instance_id, sys.executable, "-m", module, str(directory), instance_id]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    return _parse_outcomes(done.stdout)


def build(
    directory: Path, *, nodes: tuple[Instance, ...], groups: tuple[SecurityGroup, ...], targets: Collection[MountTarget]
) -> None:
    """Create the network, and serve the file systems and their names in it; the servers' threads never end."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    _use_name_server(directory)
    vpc_network.create_internet()
    vpc_network.create_router(VPC)
    for node in nodes:
        vpc_network.create_node_namespace(node.instance_id, node.address, vpc_id=VPC)
    inventory = Inventory(instances=nodes, security_groups=groups, mount_targets=tuple(targets))
    vpc_network.run_nft(VPC, render_rules(inventory, VPC))
    exports = Exports(directory)
    exports.start_names(VPC)
    exports.reconcile(targets, vpcs={VPC})
    for target in targets:
        if target.vpc_id == VPC:
            (directory / EXPORTS / target.file_system / FILE).touch()


def _use_name_server(directory: Path) -> None:
    """Make the VPC's name server that of this mount namespace."""
    resolver, target = directory / "resolv.conf", Path(os.path.realpath("/etc/resolv.conf"))
    resolver.write_text(f"nameserver {NAME_SERVER_ADDRESS}\noptions timeout:5 attempts:2\n")
    if not target.exists():  # it was below /run
        target.parent.mkdir(parents=True)
        target.touch()
    subprocess.run(["mount", "--bind", resolver, target], check=True)
