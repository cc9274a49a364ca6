"""``dlcluster ssh [NODE] [-- COMMAND]``: become OpenSSH, on its way to one node."""

import os
import sys
from pathlib import Path
from typing import Final

from cli.errors import ClusterError
from cli.nodes import choose_node, master_address
from cli.options import Options
from cli.request import Request, find, identity_path, remote_line
from cli.ssh_config import Access, ssh_arguments

PROGRAM: Final = Path(__file__).resolve().parents[2] / "bin" / "dlcluster"


def main(options: Options) -> int:
    request = find(options)
    node = choose_node(options.node, request.membership.members, cluster_name=request.cluster.name)
    command = [remote_line(options.command)] if options.command else []
    arguments = ["ssh", *ssh_arguments(access(request), node), *command]
    try:
        os.execvp(arguments[0], arguments)
    except OSError as error:
        raise ClusterError(f"cannot run ssh: {error.strerror}") from error


def access(request: Request) -> Access:
    """How OpenSSH reaches this cluster."""
    name, region, table = request.cluster.name, request.clients.region, request.cluster.table
    # The Python that runs now has boto3; the one that PATH names may not. The table is named,
    # as finding it would cost each login two more clients and a call.
    words = ("known-hosts", "--cluster", name, "--region", region, "--table", table)
    return Access(
        cluster_name=name,
        login_user=request.cluster.login_user,
        master=request.membership.master,
        master_address=master_address(request.clients.ec2, request.membership),
        known_hosts_command=(sys.executable, str(PROGRAM), *words),
        identity=identity_path(request.options.identity),
    )
