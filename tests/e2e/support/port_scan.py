"""Scan which ports of a node accept a connection, from internet addresses and from other nodes."""

import select
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager

from local.network.addresses import INTERNET, USER_ADDRESS
from local.network.vpc_network import in_namespace

OUTSIDER = "198.51.100.77"
"""Internet address that is not in ssh_location."""
SSH = 22
LISTENING_PORTS = (80, 111, 443, 2049, 6006, 8080, 8888, 29500, 61234, 65535)
"""Ports of programs that users start on such nodes, of NFS and its port mapper, of training, and high ones."""
TRIED_PORTS = (SSH, *LISTENING_PORTS)
ALL_PORTS = range(1, 65536)
SCAN_PORT = 61999
"""Source of a scan, which no connection of this machine uses: above net.ipv4.ip_local_port_range."""
SYN, ACK = 0x02, 0x10
BATCH = 100
"""Packets between two looks for answers; a socket's buffer has room for more."""
QUIET_S = 1.0
"""Seconds without an answer that end a scan."""
CONNECT_TIMEOUT_S = 2.0
FIREWALL_S = 180.0
"""Seconds until a changed rule takes effect."""

BACKLOG = 4096
"""Connections that a listening program holds, which accepts none; with a full backlog, a port would look closed."""

Address = tuple[str, int]


@contextmanager
def listening(instance_id: str) -> Iterator[None]:
    """Accept connections on a node, on every address and tried port except sshd's."""
    with ExitStack() as sockets:

        def listen() -> list[socket.socket]:
            return [socket.create_server(("0.0.0.0", port), backlog=BACKLOG) for port in LISTENING_PORTS]

        for listener in in_namespace(instance_id, listen):
            sockets.enter_context(closing(listener))
        yield


@contextmanager
def outside_machine() -> Iterator[str]:
    """Add a second machine to the internet: one more address of this one, with a route from the internet."""
    own = ["ip", "addr", "add", f"{OUTSIDER}/32", "dev", "lo"]
    route = ["ip", "-n", INTERNET, "route", "add", f"{OUTSIDER}/32", "via", USER_ADDRESS]
    for command in (own, route):
        subprocess.run(command, check=True)
    yield OUTSIDER
    for command in (route, own):
        subprocess.run([word if word != "add" else "del" for word in command], check=True)


def accepts_connection(source: str, target: Address) -> bool:
    try:
        with socket.create_connection(target, timeout=CONNECT_TIMEOUT_S, source_address=(source, 0)):
            return True
    except OSError:
        return False


def open_ports(source: str, address: str) -> set[int]:
    """Return the ports of an address that accept a connection from a source."""
    with ThreadPoolExecutor(max_workers=len(TRIED_PORTS)) as pool:
        accepted = pool.map(lambda port: accepts_connection(source, (address, port)), TRIED_PORTS)
        return {port for port, is_open in zip(TRIED_PORTS, accepted, strict=True) if is_open}


def open_ports_from_node(instance_id: str, source: str, address: str) -> set[int]:
    """Return the same, scanned by a node."""
    return in_namespace(instance_id, lambda: open_ports(source, address))


def answering_ports(source: str, address: str, ports: Iterable[int] = ALL_PORTS) -> dict[int, bool]:
    """Send ports of an address the first packet of a connection, and return those that answered.

    True means that the port would accept the connection, False that it refuses: the packet reached the node. A scan by
    connections would wait for a timeout at each port of a node that answers nothing.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP) as scan:
        scan.bind((source, 0))
        answered = dict[int, bool]()
        for number, port in enumerate(ports):
            scan.sendto(_first_packet(source, address, port), (address, 0))
            if number % BATCH == 0:
                answered |= _read_answers(scan, address, wait_s=0)
        return answered | _read_answers(scan, address, wait_s=QUIET_S)


def _first_packet(source: str, address: str, port: int) -> bytes:
    """Return a TCP segment with SYN (RFC 9293)."""
    ends = socket.inet_aton(source) + socket.inet_aton(address)
    segment = struct.pack(">2H2I2B3H", SCAN_PORT, port, 1, 0, 5 << 4, SYN, 1024, 0, 0)
    total = sum(struct.unpack(">16H", ends + struct.pack(">2H", socket.IPPROTO_TCP, len(segment)) + segment))
    total = (total & 0xFFFF) + (total >> 16)
    checksum = ~(total + (total >> 16)) & 0xFFFF
    return segment[:16] + struct.pack(">H", checksum) + segment[18:]


def _read_answers(scan: socket.socket, address: str, *, wait_s: float) -> dict[int, bool]:
    """Return the answers that have arrived: True for SYN, False for RST."""
    answered, end = {}, time.monotonic() + wait_s
    # The socket also gets the packets of other connections, which never cease.
    while select.select([scan], [], [], max(0.0, end - time.monotonic()))[0]:
        packet, (sender, _) = scan.recvfrom(128)
        header = (packet[0] & 0xF) * 4
        port, to, _, _, _, flags = struct.unpack_from(">2H2I2B", packet, header)
        if (sender, to) == (address, SCAN_PORT) and flags & ACK:
            answered[port], end = bool(flags & SYN), time.monotonic() + wait_s
        elif wait_s and time.monotonic() > end:
            break
    return answered


def wait_for_ports(scan: Callable[[], set[int]], expected: set[int]) -> None:
    deadline = time.monotonic() + FIREWALL_S
    while (ports := scan()) != expected:
        assert time.monotonic() < deadline, f"waited {FIREWALL_S:.0f} s for the ports {expected}, open are {ports}"
        time.sleep(0.2)
