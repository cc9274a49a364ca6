"""Mount Lustre in a network with a router, two nodes and a firewall, and print what each mount gave, as JSON.

    unshare --net --mount python -m tests.local.storage.lustre_network DIRECTORY

test_lustre_mount.py runs it.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from local.dataplane.firewall import render_rules
from local.network import vpc_network
from local.network.addresses import NAME_SERVER_ADDRESS
from local.node.inventory import Group, Inventory, Rule
from local.storage import lustre_mount_helper, lustre_server
from local.storage.exports import Exports
from local.storage.mount_targets import MountTarget
from local.storage.on_node import EXPORTS
from tests.local.instances import instance

VPC: Final = "vpc-1"
TIMEOUT_S: Final = 0.5
NODE: Final = instance(4, groups=("sg-nodes",), public=None, internet=None)
STRICT_NODE: Final = replace(instance(5, groups=("sg-strict",), public=None, internet=None), instance_id="i-strict")
"""Node whose group lets nothing in. Links on the router are named after the first digits of their nodes' IDs."""
CASES: Final = {
    NODE.instance_id: {
        "mounted": "fs-open.fsx@tcp:/abcdefgh",
        "wrong name": "fs-open.fsx@tcp:/other",
        "no such file system": "fs-absent.fsx@tcp:/abcdefgh",
        "another VPC": "fs-elsewhere.fsx@tcp:/abcdefgh",
        "ports 1018 to 1023 closed": "fs-half.fsx@tcp:/abcdefgh",
        "all ports closed": "fs-shut.fsx@tcp:/abcdefgh",
    },
    STRICT_NODE.instance_id: {"client lets no server in": "fs-open.fsx@tcp:/abcdefgh"},
}
"""Sources to mount by node, each under the name of its case."""
FILE: Final = "of-all-nodes"


def target(file_system: str, address: str, *, vpc_id: str = VPC, group: str = "sg-open") -> MountTarget:
    return MountTarget(
        file_system=file_system,
        host=f"{file_system}.fsx",
        address=address,
        vpc_id=vpc_id,
        group_ids=(group,),
        mount_name="abcdefgh",
    )


TARGETS: Final = (
    target("fs-open", "10.0.0.8"),
    target("fs-half", "10.0.0.9", group="sg-half"),
    target("fs-shut", "10.0.0.10", group="sg-strict"),
    target("fs-elsewhere", "10.0.0.8", vpc_id="vpc-2"),
)


def tcp(first: int, last: int) -> Rule:
    return Rule(protocol="tcp", from_port=first, to_port=last, cidrs=("10.0.0.0/24",), group_ids=())


def group(name: str, *ingress: Rule) -> Group:
    return Group(group_id=name, vpc_id=VPC, ingress=ingress, egress=(tcp(0, 65535),))


GROUPS: Final = (
    group("sg-nodes", tcp(988, 988), tcp(1018, 1023)),
    group("sg-open", tcp(988, 988), tcp(1018, 1023)),
    group("sg-half", tcp(988, 988)),
    group("sg-strict"),
)


def use_name_server(directory: Path) -> None:
    """Make the VPC's name server that of this mount namespace."""
    resolver, place = directory / "resolv.conf", Path(os.path.realpath("/etc/resolv.conf"))
    resolver.write_text(f"nameserver {NAME_SERVER_ADDRESS}\noptions timeout:5 attempts:2\n")
    if not place.exists():  # it was below /run
        place.parent.mkdir(parents=True)
        place.touch()
    subprocess.run(["mount", "--bind", resolver, place], check=True)


def build(directory: Path) -> None:
    """Create the network, and serve the file systems and their names in it."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    use_name_server(directory)
    vpc_network.create_internet()
    vpc_network.create_router(VPC)
    for node in (NODE, STRICT_NODE):
        vpc_network.create_node(node.instance_id, node.address, vpc_id=VPC)
    inventory = Inventory(instances=(NODE, STRICT_NODE), groups=GROUPS, mount_targets=TARGETS)
    vpc_network.run_nft(VPC, render_rules(inventory, VPC))
    exports = Exports(directory)
    exports.start_names(VPC)
    exports.reconcile(TARGETS, vpcs={VPC})
    (directory / EXPORTS / "fs-open" / FILE).touch()


def mount_on(instance_id: str, directory: Path) -> Any:
    """Return what each mount on a node gave; runs this module in the node's network."""
    program = [sys.executable, "-m", "tests.local.storage.lustre_network", str(directory), instance_id]
    command = ["ip", "netns", "exec", instance_id, *program]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, timeout=60, check=True).stdout)


def mount(directory: Path, source: str, place: Path) -> tuple[str, int, list[str]]:
    """Return what the mount helper prints, its exit code, and what the directory then has."""
    place.mkdir()
    lustre_mount_helper.EXPORTS, lustre_mount_helper.TIMEOUT_S = str(directory / EXPORTS), TIMEOUT_S
    with contextlib.redirect_stderr(io.StringIO()) as printed:
        code = lustre_mount_helper.main([source, str(place), "-o", "rw,noatime,flock,nosuid,nodev"])
    return printed.getvalue(), code, [found.name for found in place.iterdir()]


def main(directory: Path, instance_id: str = "") -> None:
    if instance_id:
        cases = CASES[instance_id].items()
        print(json.dumps({case: mount(directory, source, directory / case) for case, source in cases}))
        return
    lustre_server.CLIENT_TIMEOUT_S = TIMEOUT_S  # type: ignore[misc]
    build(directory)
    print(json.dumps({case: gave for name in CASES for case, gave in mount_on(name, directory).items()}), flush=True)
    os._exit(0)  # the servers' threads never end


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
