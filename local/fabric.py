"""The network of the VPC: one router namespace, one namespace a node, layer 3 all the way.

Every node has one link to the router, which answers for all neighbours (proxy ARP), so that every packet between
two nodes passes the router's firewall: security groups, NAT and public addresses are rules there.
"""

import ctypes
import logging
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from ipaddress import IPv4Interface
from pathlib import Path
from typing import TypeVar

from local.network import (
    API_ADDRESS,
    DOCKER_ADDRESS,
    METADATA_ADDRESS,
    NODE_INTERFACE,
    ROUTER,
    ROUTER_ADDRESS,
    USER_ADDRESS,
)

log = logging.getLogger(__name__)
Result = TypeVar("Result")
JUMBO_MTU = 9001
"""MTU inside a VPC ("Network maximum transmission unit (MTU) for your EC2 instance")."""


def _ip(lines: Sequence[str], *, namespace: str | None = None) -> None:
    where = ["-n", namespace] if namespace else []
    subprocess.run(["ip", *where, "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True)


def _sysctl(namespace: str, settings: dict[str, int]) -> None:
    script = "\n".join(f"echo {value} > /proc/sys/net/ipv4/{name}" for name, value in settings.items())
    subprocess.run(["ip", "netns", "exec", namespace, "sh", "-ec", script], check=True)


def in_namespace(namespace: str, act: Callable[[], Result]) -> Result:
    """Call a function in a thread that has entered a network namespace; sockets it makes stay there."""
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
        except BaseException as error:  # handed to the caller below
            errors.append(error)

    thread = threading.Thread(target=enter_and_act, name=f"in-{namespace}")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def create_router() -> None:
    """Make the router and its link to the internet, on which the user's machine and AWS's API are."""
    _ip([
        "link set lo up",
        f"addr add {API_ADDRESS}/32 dev lo",
        f"netns add {ROUTER}",
        f"link add internet type veth peer name igw netns {ROUTER}",
        f"addr add {USER_ADDRESS}/24 dev internet",
        "link set internet up",
        f"route add default via {ROUTER_ADDRESS}",
    ])  # fmt: skip
    _ip([
        "link set lo up",
        f"addr add {METADATA_ADDRESS}/32 dev lo",
        f"addr add {ROUTER_ADDRESS}/24 dev igw",
        "link set igw up",
        f"route add {API_ADDRESS}/32 via {USER_ADDRESS}",
    ], namespace=ROUTER)  # fmt: skip
    _sysctl(ROUTER, {"ip_forward": 1, "conf/default/proxy_arp": 1})


def link_name(instance_id: str) -> str:
    """Name of a node's link on the router: interface names have at most 15 characters."""
    return instance_id.removeprefix("i-")[:15]


def mac_address(address: str) -> str:
    return "02:00:" + ":".join(f"{int(part):02x}" for part in address.split("."))


def create_node(instance_id: str, address: IPv4Interface) -> None:
    """Make a node's network namespace: its interface in the VPC and the docker0 that every node has.

    ``address`` is the private address with the subnet's prefix length.
    """
    link, gateway = link_name(instance_id), address.network.network_address + 1
    _ip([f"netns add {instance_id}"])
    _ip([
        f"link add {link} mtu {JUMBO_MTU} type veth peer name {NODE_INTERFACE} mtu {JUMBO_MTU}"
        f" address {mac_address(str(address.ip))} netns {instance_id}",
        f"link set {link} up",
        f"addr replace {gateway}/32 dev lo",
        f"route add {address.ip}/32 dev {link} src {gateway}",
    ], namespace=ROUTER)  # fmt: skip
    _sysctl(ROUTER, {f"neigh/{link}/proxy_delay": 0})
    _ip([
        "link set lo up",
        f"addr add {address} dev {NODE_INTERFACE}",
        f"link set {NODE_INTERFACE} up",
        f"route add default via {gateway}",
        "link add docker0 type bridge",
        f"addr add {DOCKER_ADDRESS} dev docker0",
    ], namespace=instance_id)  # fmt: skip


def delete_node(instance_id: str) -> None:
    """Remove a node's namespace and with it its link."""
    if Path(f"/run/netns/{instance_id}").exists():
        _ip([f"netns delete {instance_id}"])


def load_rules(rules: str) -> None:
    """Replace the router's firewall, in one transaction."""
    subprocess.run(["ip", "netns", "exec", ROUTER, "nft", "-f", "-"], input=rules, text=True, check=True)
