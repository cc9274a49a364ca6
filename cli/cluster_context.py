"""What most verbs begin with: the cluster that the options mean, and its members."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from cli.aws.clients import Clients, connect
from cli.aws.clusters import Cluster, find_cluster
from cli.aws.nodes import Membership, read_membership
from cli.errors import UsageError
from cli.options import Options


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterContext:
    """A verb's options and the cluster that they mean."""

    options: Options
    clients: Clients
    cluster: Cluster
    membership: Membership


def find(options: Options) -> ClusterContext:
    """Look the cluster up."""
    clients = connect(options.region)
    cluster = find_cluster(clients.cloudformation, name=options.cluster, region=clients.region)
    membership = read_membership(
        clients.dynamodb, table=cluster.table, networks=cluster.networks, cluster_name=cluster.name
    )
    return ClusterContext(options=options, clients=clients, cluster=cluster, membership=membership)


def identity_path(name: str | None) -> str | None:
    """Absolute path of the private key, checked here as ssh only warns of a missing one."""
    if name is None:
        return None
    path = Path(name).expanduser().absolute()
    if not path.is_file():
        raise UsageError(f"--identity must be a private key file, got {name!r}")
    return ssh_path(str(path), "--identity")


def ssh_path(path: str, name: str) -> str:
    """A path that ssh's configuration can hold: it expands ${VARIABLE}, and nothing keeps it from that."""
    if "${" in path or not path.isprintable():
        raise UsageError(
            f"{name} must be a path without ${{ and control characters, which ssh cannot be told: {path!r}"
        )
    return path


def remote_line(command: tuple[str, ...]) -> str:
    """One word is a line for the node's shell; several reach the program as they are."""
    return command[0] if len(command) == 1 else shlex.join(command)
