"""Build the network: the internet, one router namespace per VPC, one namespace per node, routed at layer 3.

Every node has one link to its VPC's router, which answers for all neighbors (proxy ARP), so that every packet between
two nodes passes the router's firewall; its rules are the security groups, NAT and public addresses.
"""

import ctypes
import logging
import os
import shlex
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv4Interface
from pathlib import Path
from typing import TypeVar

from local.errors import LocalError
from local.network.addresses import (
    API_ADDRESS,
    BACKBONE_ADDRESS,
    DOCKER_ADDRESS,
    GATEWAY_ADDRESS,
    GATEWAY_INTERFACE,
    INTERNET,
    METADATA_ADDRESS,
    NAME_SERVER_ADDRESS,
    NODE_INTERFACE,
    PROVIDER_ADDRESS,
    USER_ADDRESS,
)

log = logging.getLogger(__name__)
Result = TypeVar("Result")
JUMBO_MTU = 9001
"""MTU inside a VPC ("Network maximum transmission unit (MTU) for your EC2 instance")."""


def _run(command: Sequence[str], lines: str = "", *, check: bool = True) -> None:
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        output = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise LocalError(f"{shlex.join(command)}: {output[0]}")


def _ip(lines: Sequence[str], *, namespace: str | None = None, check: bool = True) -> None:
    where = ["-n", namespace] if namespace else []
    _run(["ip", *where, "-batch", "-"], "\n".join(lines) + "\n", check=check)


def _sysctl(namespace: str, settings: dict[str, int]) -> None:
    script = "\n".join(f"echo {value} > /proc/sys/net/ipv4/{name}" for name, value in settings.items())
    _run(["ip", "netns", "exec", namespace, "sh", "-ec", script])


def in_namespace(namespace: str, act: Callable[[], Result]) -> Result:
    """Call a function in a thread that has entered a network namespace; sockets that it creates stay there."""
    results: list[Result] = []
    errors: list[BaseException] = []

    def enter_and_act() -> None:
        try:
            handle = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
            try:
                if ctypes.CDLL(None, use_errno=True).setns(handle, 0) != 0:
                    raise OSError(ctypes.get_errno(), f"cannot enter network namespace {namespace}")
            finally:
                os.close(handle)
            results.append(act())
        except BaseException as error:  # passed to the caller below
            errors.append(error)

    thread = threading.Thread(target=enter_and_act, name=f"in-{namespace}")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def create_internet() -> None:
    """Create the internet, with the user's machine and AWS's API on it."""
    _ip([
        "link set lo up",
        f"addr add {API_ADDRESS}/32 dev lo",
        f"netns add {INTERNET}",
        f"link add internet type veth peer name user netns {INTERNET}",
        f"addr add {USER_ADDRESS}/24 dev internet",
        "link set internet up",
        f"route add default via {PROVIDER_ADDRESS}",
    ])  # fmt: skip
    _ip([
        "link set lo up",
        f"addr add {PROVIDER_ADDRESS}/24 dev user",
        "link set user up",
        f"route add {API_ADDRESS}/32 via {USER_ADDRESS}",
    ], namespace=INTERNET)  # fmt: skip
    _sysctl(INTERNET, {"ip_forward": 1})


def create_router(vpc_id: str) -> None:
    """Create a VPC's router and its gateway's link to the internet."""
    link = _uplink_name(vpc_id)
    _ip([f"netns add {vpc_id}"])
    _ip([
        f"link add {link} type veth peer name {GATEWAY_INTERFACE} netns {vpc_id}",
        f"addr add {BACKBONE_ADDRESS}/32 dev {link}",
        f"link set {link} up",
    ], namespace=INTERNET)  # fmt: skip
    _ip([
        "link set lo up",
        f"addr add {METADATA_ADDRESS}/32 dev lo",
        f"addr add {NAME_SERVER_ADDRESS}/32 dev lo",
        f"addr add {GATEWAY_ADDRESS}/32 dev {GATEWAY_INTERFACE}",
        f"link set {GATEWAY_INTERFACE} up",
        f"route add default via {BACKBONE_ADDRESS} dev {GATEWAY_INTERFACE} onlink",
    ], namespace=vpc_id)  # fmt: skip
    _sysctl(vpc_id, {"ip_forward": 1, "conf/default/proxy_arp": 1})


def delete_router(vpc_id: str) -> None:
    """Remove a VPC's router and, immediately, its link, because a socket may keep the namespace a little longer."""
    if Path(f"/run/netns/{vpc_id}").exists():
        _ip([f"link delete {_uplink_name(vpc_id)}"], namespace=INTERNET, check=False)
        _ip([f"netns delete {vpc_id}"])


def add_router_address(vpc_id: str, address: str) -> None:
    """Give a VPC's router an address in the VPC, for servers that no node runs, such as mount targets."""
    _ip([f"addr replace {address}/32 dev lo"], namespace=vpc_id)


def delete_router_address(vpc_id: str, address: str) -> None:
    """Remove an address that ``add_router_address`` gave a router."""
    _ip([f"addr delete {address}/32 dev lo"], namespace=vpc_id, check=False)


def routers() -> list[str]:
    """Return the namespaces that forward packets: the internet and the existing VPC routers."""
    return [INTERNET, *sorted(path.name for path in Path("/run/netns").glob("vpc-*"))]


def load_routes(routes: Mapping[str, str], *, previous: Mapping[str, str]) -> None:
    """Route each public address to its VPC; ``previous`` is what was loaded last."""
    removed = [f"route flush exact {address}/32" for address in sorted(previous.keys() - routes.keys())]
    changed = [
        f"route replace {address}/32 via {GATEWAY_ADDRESS} dev {_uplink_name(vpc_id)} onlink"
        for address, vpc_id in sorted(routes.items())
        if previous.get(address) != vpc_id
    ]
    if removed or changed:
        _ip([*removed, *changed], namespace=INTERNET)


def _uplink_name(vpc_id: str) -> str:
    """Name a VPC's link on the internet side: interface names have at most 15 characters."""
    return vpc_id.removeprefix("vpc-")[:15]


def link_name(instance_id: str) -> str:
    """Name a node's link on the router: interface names have at most 15 characters."""
    return instance_id.removeprefix("i-")[:15]


def mac_address(address: str) -> str:
    return "02:00:" + ":".join(f"{int(part):02x}" for part in address.split("."))


def create_node_namespace(instance_id: str, address: IPv4Interface, *, vpc_id: str) -> None:
    """Create a node's network namespace, with its interface in the VPC and the docker0 that every node has.

    ``address`` is the private address with the subnet's prefix length.
    """
    link, subnet = link_name(instance_id), address.network
    gateway = subnet.network_address + 1
    _ip([f"netns add {instance_id}"])
    _ip([
        f"link add {link} mtu {JUMBO_MTU} type veth peer name {NODE_INTERFACE} mtu {JUMBO_MTU}"
        f" address {mac_address(str(address.ip))} netns {instance_id}",
        f"link set {link} up",
        f"addr replace {gateway}/32 dev lo",
        # Unused addresses of the VPC are not on the internet, and no proxy ARP answers for them.
        f"route replace unreachable {subnet}",
        f"route add {address.ip}/32 dev {link} src {gateway}",
    ], namespace=vpc_id)  # fmt: skip
    _sysctl(vpc_id, {f"neigh/{link}/proxy_delay": 0})
    _ip([
        "link set lo up",
        f"addr add {address} dev {NODE_INTERFACE}",
        f"link set {NODE_INTERFACE} up",
        f"route add default via {gateway}",
        "link add docker0 type bridge",
        f"addr add {DOCKER_ADDRESS} dev docker0",
    ], namespace=instance_id)  # fmt: skip


def delete_node_namespace(instance_id: str) -> None:
    """Remove a node's namespace and thus its link."""
    if Path(f"/run/netns/{instance_id}").exists():
        _ip([f"netns delete {instance_id}"])


def find_router(instance_id: str) -> str:
    """Return the router that has a node's link. Raises LocalError."""
    for router in routers():
        show = ["ip", "-n", router, "link", "show", link_name(instance_id)]
        if subprocess.run(show, capture_output=True, check=False).returncode == 0:
            return router
    raise LocalError(f"no router has a link to {instance_id}")


def run_nft(router: str, script: str) -> None:
    """Run an nftables script on a router, a VPC's or the internet's, in one transaction."""
    _run(["ip", "netns", "exec", router, "nft", "-f", "-"], script)
