"""``dlcluster ssh [NODE] [-- COMMAND]``: run OpenSSH to one node, in place of this process."""

import os
import shlex
from typing import Final

import click

from bootstrap.contract import MASTER
from cli.aws.nodes import choose_node
from cli.cluster_context import look_up_context
from cli.command import cluster_command
from cli.completion import complete_node
from cli.errors import ClusterError, UsageError
from cli.shared_options import Selection, invocation
from cli.ssh.access import remote_command, resolve_access
from cli.ssh.config import ssh_arguments
from cli.ssh.expired_addresses import remove_expired_addresses

NODE = "master, worker2, 2, deeplearning-worker2 or an instance id"
IN_ENVIRONMENT: Final = ("python", "pip", "torchrun")
"""Programs of the image's PyTorch environment, which the shell of a node does not have on its PATH."""
PAGE: Final = "docs/use/log-in.md, On a node"


@cluster_command(
    "ssh",
    examples=("dlcluster ssh", "dlcluster ssh worker2 -- nvidia-smi", "dlcluster ssh -- 'df -h | grep nvme'"),
    takes_command=True,
)
@click.argument("node", default=MASTER, shell_complete=complete_node, help=f"{NODE} ({MASTER}).")
def command(selection: Selection, *, node: str, command: tuple[str, ...]) -> int:
    """Log in to a node, or run a command there.

    One word after -- is a line for the node's shell; several words reach the program unchanged.
    """
    context = look_up_context(selection)
    remove_expired_addresses(context.clients, context.cluster)
    reached = resolve_access(context)  # Without a master no node is reachable.
    try:
        member = choose_node(node, context.membership.members, cluster_name=context.cluster.name)
    except UsageError as error:
        raise UsageError(f"{error}; a command goes after --, as in: {invocation()} ssh -- uptime") from error
    words = [shell_line(command)] if command else []
    arguments = ["ssh", *ssh_arguments(reached, member), *words]
    try:
        os.execvp(arguments[0], arguments)
    except OSError as error:
        raise ClusterError(f"cannot run ssh: {error.strerror}") from error


def shell_line(command: tuple[str, ...]) -> str:
    """Return the line for the node's shell, which says where to find a program of the environment if it has none."""
    line = remote_command(command)
    name = line.partition(" ")[0]
    if name not in IN_ENVIRONMENT:
        return line
    hint = f"dlcluster: the shell of a node has no {name}: launch finds it ({PAGE})"
    return f"command -v {name} >/dev/null || echo {shlex.quote(hint)} >&2; {line}"
