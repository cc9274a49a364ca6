"""Mount Lustre in a network with a router, two nodes and a firewall, and print what each mount gave, as JSON.

    unshare --net --mount python -m tests.local.storage.lustre_network DIRECTORY

test_lustre_mount.py runs it.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from local.storage import lustre_mount_helper, lustre_server
from local.storage.client_install import EXPORTS
from local.storage.mount_targets import MountTarget
from tests.local.instances import instance
from tests.local.storage.storage_network import (
    VPC,
    MountOutcome,
    build,
    group,
    mount_with,
    outcomes_on,
    print_outcomes,
    tcp,
)

MODULE: Final = "tests.local.storage.lustre_network"
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
GROUPS: Final = (
    group("sg-nodes", tcp(988, 988), tcp(1018, 1023)),
    group("sg-open", tcp(988, 988), tcp(1018, 1023)),
    group("sg-half", tcp(988, 988)),
    group("sg-strict"),
)


def mount(directory: Path, case: str, source: str) -> MountOutcome:
    lustre_mount_helper.EXPORTS, lustre_mount_helper.TIMEOUT_S = str(directory / EXPORTS), TIMEOUT_S
    return mount_with(lustre_mount_helper.main, source, directory / case, options="rw,noatime,flock,nosuid,nodev")


def main(directory: Path, instance_id: str = "") -> None:
    if instance_id:
        print_outcomes({case: mount(directory, case, source) for case, source in CASES[instance_id].items()})
        return
    lustre_server.CLIENT_TIMEOUT_S = TIMEOUT_S  # type: ignore[misc]
    build(directory, nodes=(NODE, STRICT_NODE), groups=GROUPS, targets=TARGETS)
    by_node = [outcomes_on(instance_id, MODULE, directory) for instance_id in CASES]
    print_outcomes({case: outcome for outcomes in by_node for case, outcome in outcomes.items()})
    os._exit(0)  # the servers' threads never end


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
