"""``dlcluster tunnel NODE PORT``: forward a node's port to this machine."""

import sys
import webbrowser
from typing import Final

import click

from cli.aws.nodes import choose_node
from cli.cluster_context import find_selected_cluster
from cli.completion import complete_node
from cli.errors import EXIT_INTERRUPTED, ClusterError
from cli.shared_options import Selection
from cli.ssh.access import resolve_access
from cli.ssh.forward import LOOPBACK, await_listening, forwarding, free_port
from cli.verb import verb

PORTS: Final = click.IntRange(1, 65535)


@verb("tunnel", examples=("dlcluster tunnel master 6006", "dlcluster tunnel worker2 8888 --local-port 9000"))
@click.option("--local-port", metavar="PORT", type=PORTS, help="Port on this machine (the same, or a free one).")
@click.option("--browser/--no-browser", default=None, help="Open the address in the browser (on a terminal).")
@click.argument("node", shell_complete=complete_node, help="master, worker2, 2 or an instance id.")
@click.argument("port", type=PORTS, help="Port on the node; the program may listen on localhost only.")
def command(selection: Selection, *, node: str, port: int, local_port: int | None, browser: bool | None) -> int:
    """Forward a node's port to this machine until Ctrl-C, for a program that runs there already.

    Nothing is opened to the network: the port goes through ssh, and only this machine can reach it.
    """
    context = find_selected_cluster(selection)
    reached = resolve_access(context)  # Without a master no node is reachable.
    member = choose_node(node, context.membership.members, cluster_name=context.cluster.name)
    here = free_port(port, 0) if local_port is None else free_port(local_port)
    with forwarding(reached, member, here=here, port=port) as process:
        try:
            await_listening(process, here)
            address = f"http://{LOOPBACK}:{here}/"
            print(f"{address} is port {port} of {member.short_name}; Ctrl-C ends it", flush=True)
            if sys.stdout.isatty() if browser is None else browser:
                webbrowser.open(address)
            process.wait()
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
    raise ClusterError("the connection was lost")
