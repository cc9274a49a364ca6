"""Observe an instance without a cluster: whether it is reached, writes to its disk, and has booted again."""

import socket
import subprocess
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection

from local.errors import LocalError
from local.faults.clients import client
from local.faults.node_handle import NodeHandle
from local.network.addresses import METADATA_ADDRESS
from local.network.vpc_network import in_namespace
from tests.waiting import wait_until

TIMEOUT_S = 240.0
CONNECT_TIMEOUT_S = 1.5
SSH = 22


@dataclass(frozen=True, kw_only=True, slots=True)
class BareNode:
    """A running instance with its node."""

    handle: NodeHandle
    address: str

    @property
    def name(self) -> str:
        return self.handle.instance_id

    def pings(self, other: "BareNode") -> bool:
        ping = ["ping", "-c", "1", "-W", "1", other.address]
        done = in_namespace(self.name, lambda: subprocess.run(ping, check=False, stdout=subprocess.DEVNULL, timeout=30))
        return done.returncode == 0

    def reaches_sshd(self, other: "BareNode") -> bool:
        """Return True if the other's sshd sends its banner, which takes a process, unlike a ping."""
        return in_namespace(self.name, lambda: banner(other.address))

    def metadata_answers(self) -> bool:
        return in_namespace(self.name, metadata_token)

    def writes(self) -> int:
        """Write a page to the node's disk; return 0 or the errno."""
        program = (
            "import os, sys\n"
            "try:\n"
            "    with open('/root/page', 'wb') as file:\n"
            "        file.write(b'x' * 4096)\n"
            "        file.flush()\n"
            "        os.fsync(file)\n"
            "    print(0)\n"
            "except OSError as error:\n"
            "    print(error.errno)\n"
        )
        return int(self.handle.run("python3", "-c", program))


def banner(address: str) -> bool:
    try:
        with socket.create_connection((address, SSH), timeout=CONNECT_TIMEOUT_S) as connection:
            return connection.recv(8) == b"SSH-2.0-"
    except OSError:
        return False


def metadata_token() -> bool:
    connection = HTTPConnection(METADATA_ADDRESS, timeout=CONNECT_TIMEOUT_S)
    with closing(connection):
        try:
            connection.request("PUT", "/latest/api/token", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"})
            return connection.getresponse().status == 200
        except OSError:
            return False


def wait_for_sshd(one: BareNode, other: BareNode) -> None:
    """Wait until a node reaches another's sshd, which takes a busy machine longer than one try."""
    wait_until(lambda: one.reaches_sshd(other), f"{other.name} to answer {one.name}", timeout_s=TIMEOUT_S)


def wait_for_metadata(node: BareNode) -> None:
    wait_until(node.metadata_answers, f"the metadata of {node.name}", timeout_s=TIMEOUT_S)


def boot_id_of(node: BareNode) -> str | None:
    """Read a node's boot id from outside; None while it is down."""
    try:
        return node.handle.path("/proc/sys/kernel/random/boot_id").read_text()
    except (LocalError, OSError):
        return None


def state(node: BareNode) -> str:
    instance = client("ec2").describe_instances(InstanceIds=[node.name])["Reservations"][0]["Instances"][0]
    return str(instance["State"]["Name"])
