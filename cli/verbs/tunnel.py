"""``dlcluster tunnel NODE PORT``: forward a node's port to this machine."""

import socket
import subprocess
import sys
import time
import webbrowser
from typing import Final

import click

from cli.aws.nodes import choose_node
from cli.cluster_context import find_selected_cluster
from cli.errors import EXIT_INTERRUPTED, ClusterError
from cli.shared_options import Selection
from cli.ssh.access import resolve_access
from cli.ssh.config import CONNECT_TIMEOUT_S, ssh_arguments
from cli.verb import verb

LOOPBACK: Final = "127.0.0.1"
POLL_S: Final = 0.05
PORTS: Final = click.IntRange(1, 65535)


@verb("tunnel", examples=("dlcluster tunnel master 6006", "dlcluster tunnel worker2 8888 --local-port 9000"))
@click.option("--local-port", metavar="PORT", type=PORTS, help="Port on this machine (the same, or a free one).")
@click.option("--browser/--no-browser", default=None, help="Open the address in the browser (on a terminal).")
@click.argument("node", help="master, worker2, 2 or an instance id.")
@click.argument("port", type=PORTS, help="Port on the node; the program may listen on localhost only.")
def command(selection: Selection, *, node: str, port: int, local_port: int | None, browser: bool | None) -> int:
    """Forward a node's port to this machine until Ctrl-C, for TensorBoard, Jupyter and the like.

    Nothing is opened to the network: the port goes through ssh, and only this machine can reach it.
    """
    context = find_selected_cluster(selection)
    reached = resolve_access(context)  # without a master no node is reached
    member = choose_node(node, context.membership.members, cluster_name=context.cluster.name)
    here = _free_port(port, 0) if local_port is None else _free_port(local_port)
    *options, destination = ssh_arguments(reached, member)
    forward = ["-N", "-o", "ExitOnForwardFailure=yes", "-L", f"{LOOPBACK}:{here}:localhost:{port}"]
    try:
        process = subprocess.Popen(["ssh", *options, *forward, destination], stdin=subprocess.DEVNULL)
    except OSError as error:
        raise ClusterError(f"cannot run ssh: {error.strerror}") from error
    try:
        _await_listening(process, here)
        address = f"http://{LOOPBACK}:{here}/"
        print(f"{address} is port {port} of {member.short_name}; Ctrl-C ends it", flush=True)
        if sys.stdout.isatty() if browser is None else browser:
            webbrowser.open(address)
        process.wait()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    finally:
        process.terminate()
        process.wait()
    raise ClusterError("the connection was lost")


def _free_port(*wanted: int) -> int:
    """Return the first wanted port that nothing on this machine uses; 0 is any. Raises ClusterError."""
    for port in wanted:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # closed connections linger
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            found: int = probe.getsockname()[1]
            return found
    raise ClusterError(f"port {wanted[0]} of this machine is in use: choose another with --local-port")


def _await_listening(process: "subprocess.Popen[bytes]", port: int) -> None:
    deadline = time.monotonic() + 2 * CONNECT_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ClusterError("ssh could not make the tunnel; its reason is above")
        with socket.socket() as probe:
            if probe.connect_ex((LOOPBACK, port)) == 0:
                return
        time.sleep(POLL_S)
    raise ClusterError(f"ssh did not connect within {2 * CONNECT_TIMEOUT_S} s")
