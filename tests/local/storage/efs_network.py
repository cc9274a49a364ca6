"""Mount EFS in a network with a router, a node and a firewall, and print what each mount gave, as JSON.

    unshare --net --mount python -m tests.local.storage.efs_network DIRECTORY

test_efs_mount.py runs it.
"""

import os
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from bootstrap.shared_storage.target import TUNNEL_ADDRESS, StorageTarget
from bootstrap.shared_storage.tunnel import Tunnel
from local.storage import nfs_mount_helper
from local.storage.certificates import Authority
from local.storage.client_install import EXPORTS
from local.storage.efs_server import PORT
from local.storage.file_system_policy import admits
from local.storage.mount_targets import MountTarget
from local.storage.nfs_client.__main__ import EXPORTS as EXPORTS_ON_NODE
from tests.local.instances import instance
from tests.local.storage.policies import EVERYBODY, OF_ONE_ROLE, TLS_ONLY
from tests.local.storage.storage_network import (
    REPOSITORY,
    VPC,
    MountOutcome,
    build,
    group,
    mount_with,
    outcomes_on,
    print_outcomes,
    tcp,
)

MODULE: Final = "tests.local.storage.efs_network"
CLIENT, IMPATIENT_CLIENT = nfs_mount_helper.CLIENT, "tests.local.storage.impatient_nfs_client"
SLOW_S: Final = 0.5
NODE: Final = instance(4, groups=("sg-nodes",), public=None, internet=None)
GROUPS: Final = (group("sg-nodes"), group("sg-open", tcp(PORT, PORT)), group("sg-half", tcp(1, PORT - 1)))
CLOSED: Final = "port 2049 closed"
TUNNEL, DIRECT = True, False
CASES: Final = {
    "without TLS": ("fs-open", DIRECT),
    "slow": ("fs-slow", DIRECT),
    "TLS required, without": ("fs-tls", DIRECT),
    "TLS required, with": ("fs-tls", TUNNEL),
    "anonymous": ("fs-role", TUNNEL),
    CLOSED: ("fs-shut", DIRECT),
}
"""File systems to mount, through the node's tunnel or without it, each under the name of its case."""


def target(
    file_system: str, address: str, *, policy: Any = EVERYBODY, group: str = "sg-open", slow_s: float = 0.0
) -> MountTarget:
    return MountTarget(
        file_system=file_system,
        host=f"{file_system}.efs",
        address=address,
        vpc_id=VPC,
        group_ids=(group,),
        admits_tls=admits(policy, file_system, encrypted=True),
        admits_plaintext=admits(policy, file_system, encrypted=False),
        slow_s=slow_s,
    )


TARGETS: Final = {
    mount_target.file_system: mount_target
    for mount_target in (
        target("fs-open", "10.0.0.8"),
        target("fs-slow", "10.0.0.9", slow_s=SLOW_S),
        target("fs-tls", "10.0.0.10", policy=TLS_ONLY),
        target("fs-role", "10.0.0.11", policy=OF_ONE_ROLE),
        target("fs-shut", "10.0.0.12", group="sg-half"),
    )
}


def prepare(directory: Path) -> None:
    """Give this mount namespace what a node's disk has for the NFS client."""
    for mount_point in ("/sys/fs/cgroup", "/var/lib"):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", mount_point], check=True)
    Path(EXPORTS_ON_NODE).mkdir(parents=True)
    subprocess.run(["mount", "--bind", directory / EXPORTS, EXPORTS_ON_NODE], check=True)
    nfs_mount_helper.LIBRARY = str(REPOSITORY)


def tunnel_to(file_system: str, directory: Path) -> int:
    """Start the tunnel of a node, which trusts the run's authority; return its port."""
    host = TARGETS[file_system].host
    context = ssl.create_default_context(cafile=Authority(directory).certificate)
    named = StorageTarget(kind="efs", file_system=file_system, host=host)
    return Tunnel(named, context=context, port=0, on_end=lambda: None).start()


def mount(directory: Path, case: str) -> MountOutcome:
    file_system, through_tunnel = CASES[case]
    nfs_mount_helper.CLIENT = IMPATIENT_CLIENT if case == CLOSED else CLIENT
    address, port = TARGETS[file_system].address, PORT
    if through_tunnel:
        address, port = TUNNEL_ADDRESS, tunnel_to(file_system, directory)
    options = f"vers=4.1,proto=tcp,addr={address},port={port}"
    outcome = mount_with(nfs_mount_helper.main, f"{address}:/", directory / case, options=options)
    if outcome.exit_code == 0:
        subprocess.run(["umount", "-l", directory / case], check=True)
    return outcome


def main(directory: Path, instance_id: str = "") -> None:
    if instance_id:
        prepare(directory)
        print_outcomes({case: mount(directory, case) for case in CASES})
        return
    build(directory, nodes=(NODE,), groups=GROUPS, targets=TARGETS.values())
    print_outcomes(outcomes_on(NODE.instance_id, MODULE, directory))
    os._exit(0)  # the servers' threads never end


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
