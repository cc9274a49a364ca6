"""Turn "no such node" errors into "the cluster is paused", if it is."""

from collections.abc import Iterator
from contextlib import contextmanager

from cli.aws.clients import Clients, aws_errors
from cli.aws.scaling import NO_GROUPS, ScalingGroups, find_groups
from cli.errors import ClusterError, ForgedRecordError
from cli.shared_options import invocation


@contextmanager
def replace_error_if_paused(clients: Clients, cluster_name: str) -> Iterator[None]:
    """Replace an error of the block if the cluster is paused. Raises ClusterError."""
    try:
        yield
    except ForgedRecordError:
        raise
    except ClusterError as error:
        groups = _find_groups(clients, cluster_name)
        if groups.desired_nodes(default=1) == 0:
            # Outside of its Capacity Block, resume would start nothing.
            hint = "" if groups.in_block else f": {invocation()} resume brings its nodes back"
            raise ClusterError(f"the cluster is paused{hint}") from error
        raise


def _find_groups(clients: Clients, cluster_name: str) -> ScalingGroups:
    try:
        with aws_errors(clients.region):
            return find_groups(clients.autoscaling, cluster_name)
    except ClusterError:
        return NO_GROUPS  # without the right to list groups, nobody knows
