"""``dlcluster tunnel NODE PORT``: forward a node's port to this machine."""

import os
import select
import shlex
import subprocess
import time
from typing import Final

import click

from bootstrap.contract import MASTER
from cli.aws.nodes import ClusterNode, choose_node
from cli.cluster_context import look_up_context
from cli.command import cluster_command
from cli.completion import complete_node
from cli.errors import EXIT_INTERRUPTED, ClusterError
from cli.shared_options import Selection, invocation
from cli.ssh.access import resolve_access
from cli.ssh.browser import browser_option, open_address
from cli.ssh.config import CONNECT_TIMEOUT_S
from cli.ssh.forward import LOOPBACK, forwarding, free_port, wait_until_listening

PORTS: Final = click.IntRange(1, 65535)
OPEN: Final = b"open\n"
NOTHING_LISTENS: Final = b"nothing listens\n"
PROBE: Final = (
    f'(exec 3<>"/dev/tcp/localhost/$0") 2>/dev/null && echo {OPEN.decode().strip()} '
    f"|| echo {NOTHING_LISTENS.decode().strip()}; exec cat >/dev/null"
)
"""Script for bash on the node, with the port as $0: it prints one line, then waits until ssh ends."""
PROBE_TIMEOUT_S: Final = 2.0 * CONNECT_TIMEOUT_S
COMMANDS: Final = {6006: "tensorboard starts TensorBoard", 8888: "jupyter starts JupyterLab"}
"""Advice, after dlcluster's name, for the usual ports of programs that dlcluster itself starts on the master."""


@cluster_command("tunnel", examples=("dlcluster tunnel master 6006", "dlcluster tunnel worker2 8888 --local-port 9000"))
@click.option("--local-port", metavar="PORT", type=PORTS, help="Port on this machine (the same, or a free one).")
@browser_option
@click.argument("node", shell_complete=complete_node, help="master, worker2, 2 or an instance id.")
@click.argument("port", type=PORTS, help="Port on the node; the program may listen on localhost only.")
def command(selection: Selection, *, node: str, port: int, local_port: int | None, browser: bool | None) -> int:
    """Forward a node's port to this machine until Ctrl-C, for a program that listens there already.

    Nothing is opened to the network: the port goes through ssh, and only this machine can reach it.
    """
    context = look_up_context(selection)
    reached = resolve_access(context)  # Without a master no node is reachable.
    member = choose_node(node, context.membership.members, cluster_name=context.cluster.name)
    here = free_port(port, 0) if local_port is None else free_port(local_port)
    probe = shlex.join(["bash", "-c", PROBE, str(port)])
    with forwarding(reached, member, here=here, port=port, command=[probe]) as process:
        try:
            # First, because wait_until_listening connects, and ssh would report the refusal.
            check_port(process, member, port)
            wait_until_listening(process, here)
            address = f"http://{LOOPBACK}:{here}/"
            print(f"{address} is port {port} of {member.short_name}; Ctrl-C ends it", flush=True)
            open_address(address, wanted=browser)
            process.wait()
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
    raise ClusterError("the connection was lost")


def _answer(process: "subprocess.Popen[bytes]", *, timeout_s: float) -> bytes:
    """Return what the probe prints until its line ends; what there is after the timeout, in seconds."""
    assert process.stdout is not None
    answer, deadline = b"", time.monotonic() + timeout_s
    while not answer.endswith((OPEN, NOTHING_LISTENS)):
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        received = os.read(process.stdout.fileno(), 4096) if ready else b""
        if not received:
            break
        answer += received
    return answer


def check_port(process: "subprocess.Popen[bytes]", member: ClusterNode, port: int) -> None:
    """Read the probe's line. Raises ClusterError if no program on the node accepts connections, with what to start."""
    if not _answer(process, timeout_s=PROBE_TIMEOUT_S).endswith(NOTHING_LISTENS):
        return
    name = member.short_name
    is_known = port in COMMANDS and member.node_type == MASTER
    started = f"; {invocation()} {COMMANDS[port]} there itself" if is_known else ""
    advice = f"start the program first ({invocation()} ssh {name}), then the tunnel{started}"
    raise ClusterError(f"nothing listens on localhost:{port} of {name}: {advice}")
