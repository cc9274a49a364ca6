"""``dlcluster ssh [NODE] [-- COMMAND]``: become OpenSSH, on its way to one node."""

import os
import sys
from pathlib import Path
from typing import Final

from cli.aws.nodes import choose_node, master_address
from cli.cluster_context import ClusterContext, find, identity_path, remote_line, ssh_path
from cli.errors import ClusterError
from cli.options import Options
from cli.ssh.config import Access, ssh_arguments

PROGRAM: Final = Path(__file__).resolve().parents[2] / "bin" / "dlcluster"


def main(options: Options) -> int:
    context = find(options)
    node = choose_node(options.node, context.membership.members, cluster_name=context.cluster.name)
    command = [remote_line(options.command)] if options.command else []
    arguments = ["ssh", *ssh_arguments(access(context), node), *command]
    try:
        os.execvp(arguments[0], arguments)
    except OSError as error:
        raise ClusterError(f"cannot run ssh: {error.strerror}") from error


def access(context: ClusterContext) -> Access:
    """How OpenSSH reaches this cluster."""
    cluster = context.cluster
    # The Python that runs now has boto3; the one that PATH names may not. Table and networks are named,
    # as finding them would cost each login two more clients and a call.
    networks = ",".join(map(str, cluster.networks))
    named = ("--cluster", cluster.name, "--region", context.clients.region, "--table", cluster.table)
    words = ("known-hosts", *named, "--networks", networks)
    python, program = (ssh_path(path, "dlcluster's own path") for path in (sys.executable, str(PROGRAM)))
    return Access(
        cluster_name=cluster.name,
        login_user=cluster.login_user,
        master=context.membership.master,
        master_address=master_address(context.clients.ec2, context.membership, cluster_name=cluster.name),
        known_hosts_command=(python, program, *words),
        identity=identity_path(context.options.identity),
    )
