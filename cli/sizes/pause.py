"""Say that a cluster is paused where one of its nodes is missing, because "no master" alone reads like a fault."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cli.aws.clients import Clients, aws_errors
from cli.aws.scaling import find_groups
from cli.errors import ClusterError

RESUME: Final = ": dlcluster resume brings its nodes back"


@contextmanager
def explaining_pause(clients: Clients, cluster_name: str, *, hint: str = RESUME) -> Iterator[None]:
    """Replace an error of the block if the cluster is paused. Raises ClusterError."""
    try:
        yield
    except ClusterError as error:
        if _is_paused(clients, cluster_name):
            raise ClusterError(f"the cluster is paused{hint}") from error
        raise


def _is_paused(clients: Clients, cluster_name: str) -> bool:
    try:
        with aws_errors(clients.region):
            groups = find_groups(clients.autoscaling, cluster_name)
    except ClusterError:
        return False  # without the right to list groups, nobody knows
    return groups.desired_nodes(default=1) == 0
