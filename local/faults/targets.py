"""Describe the instance that a name denotes, so that the user can read what was broken."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from local.errors import LocalError
from local.faults.clients import client
from local.faults.node_indexes import aliases, members_by_cluster, resolve

ENDED_STATES = ("shutting-down", "terminated")


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultTarget:
    """The instance that a fault targets."""

    instance_id: str
    alias: str | None
    """Short name of its node index, if it has one."""
    address: str

    def __str__(self) -> str:
        if self.alias is None:
            return f"{self.instance_id} ({self.address})"
        return f"{self.alias} ({self.instance_id}, {self.address})"


def find_target(run_dir: Path, name: str) -> FaultTarget:
    """Describe the instance that a name currently denotes. Raises LocalError if there is none or it has terminated."""
    return describe_target(name, members_by_cluster(run_dir))


def describe_target(name: str, clusters: Mapping[str, Mapping[int, str]]) -> FaultTarget:
    instance_id = resolve(name, clusters)
    # A filter finds nothing where a list of ids would cause an error.
    answer = client("ec2").describe_instances(Filters=[{"Name": "instance-id", "Values": [instance_id]}])
    instances = [instance for reservation in answer["Reservations"] for instance in reservation["Instances"]]
    if not instances:
        raise LocalError(f"no instance {instance_id}")
    state = instances[0]["State"]["Name"]
    if state in ENDED_STATES:
        raise LocalError(f"{name}{'' if name == instance_id else f' ({instance_id})'} is {state}")
    alias, address = aliases(clusters).get(instance_id), instances[0].get("PrivateIpAddress", "no address")
    return FaultTarget(instance_id=instance_id, alias=alias, address=address)
