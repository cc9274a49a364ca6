"""Mark the workers that leave their group for an image, and find and terminate those that have left."""

import sys
import time
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from bootstrap.contract import CLUSTER_TAG, GROUP_TAG, SETUP_TAG
from cli.aws.nodes import NOT_TERMINATED_STATES, TERMINATE_COMMAND, tag_values
from cli.cluster_lock import Lock
from cli.image.images import pending_images

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

DETACHED_TAG: Final = "deeplearning:detached-from"
"""Tag of a worker that `bake` has detached: name of its group. Without it, somebody else may have detached the node."""
POLL_S: Final = 5.0
DETACH_POLLS: Final = 12
"""Number of polls, POLL_S apart, until AWS has removed the group's tag from a detached worker."""


def mark_chosen(ec2: "EC2Client", instance_id: str, *, sha256: str) -> None:
    """Tag the worker of an image, so that it is found if `bake` is killed while the worker leaves its group."""
    ec2.create_tags(Resources=[instance_id], Tags=[{"Key": SETUP_TAG, "Value": sha256}])


def unmark(ec2: "EC2Client", instance_id: str) -> None:
    """Remove the tag of a worker that stays in its group."""
    ec2.delete_tags(Resources=[instance_id], Tags=[{"Key": SETUP_TAG}])


def mark_detached(ec2: "EC2Client", instance_id: str, *, group: str) -> None:
    """Tag a worker that is detached, so that `terminate_baked_workers` terminates it once it is in no group."""
    ec2.create_tags(Resources=[instance_id], Tags=[{"Key": DETACHED_TAG, "Value": group}])


def terminate_baked_workers(ec2: "EC2Client", *, cluster_name: str, detached: str | None = None) -> None:
    """Terminate the workers that images were made of, once they have left their group and their image is there.

    Wait for one that was just `detached`. Call this only while holding the lock of `bake`: a worker that another bake
    is cleaning looks the same.
    """
    # Without its instance, a pending image may fail.
    pending = pending_images(ec2, cluster_name=cluster_name)
    remaining = _terminate_detached(ec2, cluster_name, detached, except_ids=pending)
    for _ in range(DETACH_POLLS):
        if detached is None or not remaining.get(detached):
            break
        time.sleep(POLL_S)
        remaining = _terminate_detached(ec2, cluster_name, detached, except_ids=pending)
    for instance_id, is_in_group in remaining.items():
        if instance_id in pending:
            state = f"runs on until image {pending[instance_id]} of it is complete"
            _say(f"{instance_id} {state}; dlcluster bake then terminates it, or: {TERMINATE_COMMAND} {instance_id}")
        elif not is_in_group:
            _say(f"{instance_id} was chosen for an image and is in no group: {how_to_terminate(instance_id)}")
        elif instance_id == detached:
            waited = DETACH_POLLS * POLL_S
            _say(f"{instance_id} still has its group's tag after {waited:.0f} s: {how_to_terminate(instance_id)}")


def _terminate_detached(
    ec2: "EC2Client", cluster_name: str, detached: str | None, *, except_ids: Container[str]
) -> dict[str, bool]:
    """Terminate the workers that `bake` has detached; return the others, each with True if it is still in a group."""
    remaining = {}
    for instance in _marked(ec2, cluster_name):
        instance_id, is_in_group = instance["InstanceId"], bool(tag_values(instance, GROUP_TAG))
        is_ours = instance_id == detached or bool(tag_values(instance, DETACHED_TAG))
        if is_in_group or not is_ours or instance_id in except_ids:
            remaining[instance_id] = is_in_group
            continue
        _say(f"terminating {instance_id}, the worker of an image")
        ec2.terminate_instances(InstanceIds=[instance_id])
    return remaining


@contextmanager
def terminating_after(
    ec2: "EC2Client", lock: Lock, *, cluster_name: str, detached: str | None = None
) -> Iterator[None]:
    """Terminate the workers of images after the block, also if it fails, unless another bake has taken over.

    If AWS does not answer, name the worker that was `detached`, and keep the error of the block.
    """
    try:
        yield
    except BaseException:
        with suppress(Exception):
            _terminate_if_held(ec2, lock, cluster_name, detached)
        raise
    _terminate_if_held(ec2, lock, cluster_name, detached)


def _terminate_if_held(ec2: "EC2Client", lock: Lock, cluster_name: str, detached: str | None) -> None:
    try:
        if lock.is_held():
            terminate_baked_workers(ec2, cluster_name=cluster_name, detached=detached)
    except BaseException:
        if detached is not None:
            _say(f"cannot tell whether {detached} still runs: {how_to_terminate(detached)}")
        raise


def _say(line: str) -> None:
    # After a hangup, there is no terminal.
    with suppress(OSError):
        print(f"dlcluster: {line}", file=sys.stderr)


def how_to_terminate(instance_id: str) -> str:
    """Tell the user how to terminate a worker that may have been erased for an image."""
    return f"unless dlcluster status lists it as a node, terminate it with: {TERMINATE_COMMAND} {instance_id}"


def _marked(ec2: "EC2Client", cluster_name: str) -> Iterator[Any]:
    """Yield EC2's description of each worker that was chosen for an image."""
    filters: Any = [
        {"Name": f"tag:{CLUSTER_TAG}", "Values": [cluster_name]},
        {"Name": "tag-key", "Values": [SETUP_TAG]},
        {"Name": "instance-state-name", "Values": [*NOT_TERMINATED_STATES]},
    ]
    for page in ec2.get_paginator("describe_instances").paginate(Filters=filters):
        for reservation in page["Reservations"]:
            yield from reservation["Instances"]
