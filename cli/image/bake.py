"""Make an image of a worker that leaves its cluster for it."""

from cli.aws.clusters import DeployedSetup
from cli.aws.nodes import TERMINATE_COMMAND, ClusterNode, check_instance
from cli.cluster_context import ClusterContext
from cli.cluster_lock import Lock
from cli.image.baked_workers import terminate_baked_workers, terminating_after
from cli.image.images import create_image, require_permissions, wait_for_image
from cli.image.worker import choose_worker, clean, detach_worker, require_idle
from cli.node_groups.confirm import confirm
from cli.ssh.master_connection import MasterConnection


def bake(
    context: ClusterContext, connection: MasterConnection, setup: DeployedSetup, lock: Lock, *, yes: bool
) -> tuple[str, str]:
    """Make the image of a worker; return the IDs of both. Raises ClusterError."""
    ec2, name, sha256 = context.clients.ec2, context.cluster.name, setup.sha256
    worker = choose_worker(context, setup)
    node = check_instance(ec2, worker, cluster_name=name)
    require_idle(connection)
    confirm(
        _question(worker),
        yes=yes,
        action=(
            f"{name} in {context.clients.region}: making an image of {worker.short_name} ({worker.instance_id}), "
            "then terminating and replacing it"
        ),
    )
    # The answer may have taken long.
    lock.acquire_or_renew()
    require_idle(connection)
    require_permissions(ec2, node, cluster_name=name, sha256=sha256)
    # A bake that was killed may have left its worker.
    terminate_baked_workers(ec2, cluster_name=name)
    with terminating_after(ec2, lock, cluster_name=name, detached=worker.instance_id):
        detach_worker(context, worker, setup)
        clean(connection, worker, setup)
        image_id = create_image(ec2, node, cluster_name=name, sha256=sha256)
        wait_for_image(ec2, image_id, keep_alive=lock.acquire_or_renew)
    return image_id, worker.instance_id


def _question(worker: ClusterNode) -> str:
    return (
        f"The image will include everything that jobs have changed on {worker.short_name}; jobs can become root there. "
        f"To bake a clean worker instead, replace it first: {TERMINATE_COMMAND} {worker.instance_id}\n"
        f"Create the image, then terminate and replace {worker.short_name} ({worker.instance_id})? Its disk is erased."
    )
