"""Determine how the user's machine reaches a cluster: key, address, and OpenSSH's command for host keys."""

import shlex
import sys
import sysconfig
from pathlib import Path

from cli.aws.nodes import master_address
from cli.cluster_context import ClusterContext
from cli.errors import UsageError
from cli.ssh.config import LoginSettings

PROGRAM = "dlcluster"
CHECKOUT = Path(__file__).resolve().parents[2]


def resolve_access(context: ClusterContext) -> LoginSettings:
    """Return how OpenSSH reaches this cluster. Raises ClusterError if the cluster has no master."""
    cluster, membership, master = context.cluster, context.membership, context.master
    # The running Python has boto3, the one on PATH may not. Pass table and networks, because finding them would cost
    # each login two more clients and a call.
    networks = ",".join(map(str, cluster.networks))
    named = ("--region", context.clients.region, "--table", cluster.table, "--networks", networks)
    dlcluster_command = [ssh_path(path, "dlcluster's own path") for path in (sys.executable, str(own_program()))]
    address, session = None, (*dlcluster_command, "ssm-proxy", *named, cluster.name)
    if not cluster.is_private:
        with context.explain_if_paused():
            address, session = master_address(context.clients.ec2, membership, cluster_name=cluster.name), ()
    return LoginSettings(
        cluster_name=cluster.name,
        login_user=cluster.login_user,
        master=master,
        master_address=address,
        known_hosts_command=(*dlcluster_command, "known-hosts", "--cluster", cluster.name, *named),
        session_command=session,
        identity=identity_path(context.selection.identity),
    )


def own_program() -> Path:
    """Return the path of dlcluster: in the checkout, or as installed by ``pip install``."""
    program = CHECKOUT / "bin" / "dlcluster"
    # pip install --user puts programs into another directory, that of the running program.
    installed = (Path(sysconfig.get_path("scripts"), PROGRAM), Path(sys.argv[0]).absolute().parent / PROGRAM)
    return next((path for path in (program, *installed) if path.is_file()), installed[0])


def identity_path(name: str | None) -> str | None:
    """Return the private key's absolute path; check it here, because ssh only warns about a missing file."""
    if name is None:
        return None
    path = Path(name).expanduser().absolute()
    if not path.is_file():
        raise UsageError(f"--identity must be a private key file, got {name!r}")
    return ssh_path(str(path), "--identity")


def ssh_path(path: str, name: str) -> str:
    """Return the path if ssh's configuration can contain it: ssh expands ${VARIABLE} even within quotes."""
    if "${" in path or not path.isprintable():
        raise UsageError(f"{name} must be a path without ${{ and control characters, got {path!r}")
    return path


def remote_command(command: tuple[str, ...]) -> str:
    """Return a single word unchanged, as a line for the node's shell; quote several, so that they stay separate."""
    return command[0] if len(command) == 1 else shlex.join(command)
