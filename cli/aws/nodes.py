"""Read the nodes of a cluster: the membership record, joined with EC2's view of each."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from bootstrap.cluster.record_validation import Networks, RecordError, check_address, shown
from bootstrap.cluster.records import MemberRecord, parse_membership
from bootstrap.contract import (
    CLUSTER_TAG,
    GROUP_TAG,
    MASTER,
    MASTER_HOST,
    MEMBERSHIP_ID,
    SETUP_FAILED,
    SETUP_TAG,
    TABLE_KEY,
    worker_host,
)
from cli.errors import ClusterError, ForgedRecordError, NoMembersError, UsageError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeDef


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterNode(MemberRecord):
    """One node of the membership record, with the names that dlcluster shows and accepts."""

    ssh_key: str = ""
    draining: bool = False
    """True if the node is in standby or about to be terminated: no list of hosts names it, but it keeps its index."""

    @classmethod
    def of(cls, record: MemberRecord) -> "ClusterNode":
        """Return the node of a member's record."""
        return cls(**asdict(record))

    @property
    def has_failed_setup(self) -> bool:
        """Return True if the user's setup has failed: no list contains the node, but users can log in to it."""
        return self.setup.startswith(SETUP_FAILED)

    @property
    def alias(self) -> str:
        """Return the host name within the cluster."""
        return worker_host(self.node_index)

    @property
    def host_names(self) -> tuple[str, ...]:
        """Return all host names within the cluster."""
        return (MASTER_HOST, self.alias) if self.node_type == MASTER else (self.alias,)

    @property
    def short_name(self) -> str:
        """Return ``master`` or ``worker2``."""
        return MASTER if self.node_type == MASTER else self.alias.removeprefix("deeplearning-")


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterMembership:
    """The membership record as dlcluster uses it."""

    generation: int
    desired_nodes: int
    members: tuple[ClusterNode, ...]
    shared_storage: str = ""
    """File system that all nodes mount; empty while unknown."""
    master_trains: bool = True
    """False if jobs run on the workers only."""

    @property
    def desired_training_nodes(self) -> int:
        """Return the number of nodes on which the launcher starts a job by default (launcher.hosts.cluster_size)."""
        return self.desired_nodes if self.master_trains else max(self.desired_nodes - 1, 0)

    @property
    def master(self) -> ClusterNode:
        """Return the node that can be reached from outside. Raises ClusterError if there is none."""
        for member in self.members:
            if member.node_type == MASTER and (not member.draining or member.has_failed_setup):
                return member
        raise ClusterError(NO_MASTER)


@dataclass(frozen=True, kw_only=True, slots=True)
class Instance:
    """A node, as EC2 describes it."""

    instance_type: str
    zone: str
    public_address: str
    """Public address; empty without one."""
    state: str
    launched: datetime | None = None


MAX_FILTER_VALUES: Final = 200
"""Largest number of values in a filter ("List and filter your resources", Amazon EC2 User Guide)."""
RUNNING: Final = "running"
NOT_TERMINATED_STATES: Final = ("pending", RUNNING, "stopping", "stopped")
TERMINATE_COMMAND: Final = "aws ec2 terminate-instances --instance-ids"
NO_MASTER: Final = "the cluster has no master now: it may be starting or being replaced"
GONE: Final = Instance(instance_type="", zone="", public_address="", state="gone")


def read_membership(
    dynamodb: "DynamoDBClient", *, table: str, networks: Networks, cluster_name: str | None
) -> ClusterMembership:
    """Return the membership record of a cluster's table; `cluster_name`, if known, is for messages.

    Any process on the master can write the record, so no part of it is used before all of it has been checked.
    """
    cluster = "the cluster" if cluster_name is None else f"cluster {cluster_name}"
    try:
        answer = dynamodb.get_item(TableName=table, Key={TABLE_KEY: {"S": MEMBERSHIP_ID}}, ConsistentRead=True)
    except dynamodb.exceptions.ResourceNotFoundException as error:
        raise ClusterError(
            f"table {table} of {cluster} no longer exists; if it was redeployed, run dlcluster ssh-config again"
        ) from error
    item = answer.get("Item")
    if item is None:
        raise NoMembersError(f"{cluster} has no members yet: its master has not started")
    try:
        record = parse_membership(item, networks)
    except RecordError as error:
        raise ClusterError(
            f"{cluster} has a membership record that cannot be used: {error} (its master replaces it within a minute)"
        ) from error
    return ClusterMembership(
        generation=record.generation,
        desired_nodes=record.desired_nodes,
        members=tuple(map(ClusterNode.of, record.members)),
        shared_storage=record.shared_storage,
        master_trains=record.master_trains,
    )


def cluster_instances(ec2: "EC2Client", cluster_name: str) -> "dict[str, InstanceTypeDef]":
    """Return EC2's description of each instance with a cluster's tag, whether it is a node or not."""
    filters: Any = [{"Name": f"tag:{CLUSTER_TAG}", "Values": [cluster_name]}]
    return {instance["InstanceId"]: instance for instance in _pages(ec2, filters)}


def is_left_by_bake(instance: Any) -> bool:
    """Return True if an instance was chosen for an image and is in no group, so that nothing but `bake` ends it."""
    is_marked = tag_values(instance, SETUP_TAG) and not tag_values(instance, GROUP_TAG)
    return bool(is_marked) and instance["State"]["Name"] in NOT_TERMINATED_STATES


def tag_values(resource: Any, key: str) -> list[str]:
    """Return the value of a resource's tag; none without the tag."""
    return [tag["Value"] for tag in resource.get("Tags", []) if tag["Key"] == key]


def find_instances(ec2: "EC2Client", instance_ids: Sequence[str]) -> dict[str, Instance]:
    """Return EC2's view of each instance; one that EC2 has forgotten is GONE."""
    starts = range(0, len(instance_ids), MAX_FILTER_VALUES)
    instances = {
        instance["InstanceId"]: summarize_instance(instance)
        for start in starts
        for instance in _described(ec2, instance_ids[start : start + MAX_FILTER_VALUES])
    }
    return {instance_id: instances.get(instance_id, GONE) for instance_id in instance_ids}


def _described(ec2: "EC2Client", instance_ids: Sequence[str]) -> "Iterator[InstanceTypeDef]":
    # Unlike InstanceIds, a filter does not fail for an id that no longer exists.
    return _pages(ec2, [{"Name": "instance-id", "Values": list(instance_ids)}])


def _pages(ec2: "EC2Client", filters: "Sequence[FilterTypeDef]") -> "Iterator[InstanceTypeDef]":
    for page in ec2.get_paginator("describe_instances").paginate(Filters=filters):
        for reservation in page["Reservations"]:
            yield from reservation["Instances"]


def running_count(membership: ClusterMembership, instances: Mapping[str, Instance]) -> int:
    """Count running members that are not draining."""
    return sum(instances[member.instance_id].state == RUNNING and not member.draining for member in membership.members)


def missing_count(membership: ClusterMembership, instances: Mapping[str, Instance], *, desired_nodes: int) -> int:
    """Count desired nodes that are missing: never joined, stopped or lost."""
    return max(desired_nodes - running_count(membership, instances), 0)


def summarize_instance(described: "InstanceTypeDef") -> Instance:
    """Return what dlcluster shows of an instance."""
    return Instance(
        instance_type=described["InstanceType"],
        zone=described["Placement"]["AvailabilityZone"],
        public_address=described.get("PublicIpAddress", ""),
        state=described["State"]["Name"],
        launched=described.get("LaunchTime"),
    )


def master_address(ec2: "EC2Client", membership: ClusterMembership, *, cluster_name: str) -> str:
    """Return the master's public address after checking with EC2 that the instance belongs to the cluster."""
    return _public_address(check_instance(ec2, membership.master, cluster_name=cluster_name))


def check_instance(ec2: "EC2Client", member: ClusterNode, *, cluster_name: str) -> "InstanceTypeDef":
    """Return EC2's description of a member after checking that the instance runs and belongs to the cluster.

    Any process on the master can write the record and, with another instance's id, lead a login there.
    """
    instance = next(_described(ec2, [member.instance_id]), None)
    state = GONE.state if instance is None else instance["State"]["Name"]
    if instance is None or state != RUNNING:
        if member.node_type == MASTER:
            raise ClusterError(f"{NO_MASTER} ({member.instance_id} is {state})")
        raise ClusterError(f"{member.instance_id} must be {RUNNING}, its state is {state}")
    tags = {tag.get("Key"): tag.get("Value") for tag in instance.get("Tags", [])}
    for what, recorded, known in (
        (f"tag {CLUSTER_TAG}", cluster_name, tags.get(CLUSTER_TAG)),
        ("private address", member.address, instance.get("PrivateIpAddress")),
    ):
        if known != recorded:
            raise ForgedRecordError(
                f"the membership record names {member.instance_id} as the {member.short_name}, which is not the "
                f"cluster's: its {what} must be {recorded}, EC2 says {shown(known)}"
            )
    return instance


def _public_address(instance: "InstanceTypeDef") -> str:
    name, address = instance["InstanceId"], instance.get("PublicIpAddress")
    if not address:
        raise ClusterError(f"the master {name} has no public address")
    try:
        return check_address(address, networks=None)
    except RecordError as error:
        raise ClusterError(f"the master {name} has an invalid public address: {error}") from error


def choose_node(name: str, members: Iterable[ClusterNode], *, cluster_name: str) -> ClusterNode:
    """Return the node that `name` denotes: master, worker2, 2, deeplearning-worker2 or an instance id."""
    members = tuple(members)
    short = name.removeprefix(f"{cluster_name}-")
    for member in members:
        known = (
            *member.host_names,
            member.short_name,
            member.instance_id,
            str(member.node_index),
            f"worker{member.node_index}",
        )
        if name in known or short in known:
            return member
    listed = ", ".join(f"{member.short_name} ({member.instance_id})" for member in members)
    raise UsageError(f"no node {name!r} in cluster {cluster_name}; its nodes: {listed}")
