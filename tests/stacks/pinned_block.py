"""Define a Capacity Block whose dates were looked up before, and the settings of a cluster in it."""

import dataclasses
from typing import Any

from stacks.settings.props import ClusterProps

ACCOUNT, REGION = "111111111111", "us-west-2"
BLOCK = "cr-0123456789abcdef0"
FACTS = {
    "AvailabilityZone": "us-west-2b",
    "EndDate": "2999-01-15T11:30:00Z",
    "InstanceType": "g5.8xlarge",
    "ReservationType": "capacity-block",
    "StartDate": "2999-01-01T11:30:00.000Z",
    "TotalInstanceCount": 3,
}
SETTINGS: dict[str, Any] = {
    "purchase": "capacity-block",
    "capacity_reservation": BLOCK,
    "availability_zone": "us-west-2b",
    "instance_type": "g5.8xlarge",
    "ami": "ami-0123456789abcdef0",
    "worker_count": 2,
}


def pinned(block: str, facts: dict[str, Any], region: str = REGION) -> dict[str, Any]:
    """Return the lookup's answer as cdk.context.json holds it."""
    wanted = ":".join(f"propertiesToReturn.{number}={name}" for number, name in enumerate(sorted(FACTS)))
    key = f"cc-api-provider:account={ACCOUNT}:exactIdentifier={block}:{wanted}:region={region}"
    return {f"{key}:typeName=AWS$:$:EC2$:$:CapacityReservation": [facts]}


def with_block(props: ClusterProps, number: int, region: str = REGION) -> tuple[ClusterProps, dict[str, Any]]:
    """Return the settings with a block that fits them, and what cdk.context.json holds for a stack with an account.

    Each stack of an app has a block of its own, because the answer depends on nothing but the ID.
    """
    first = f"{region}b"
    facts = FACTS | {
        "AvailabilityZone": props.availability_zone or first,
        "InstanceType": props.instance_type,
        "TotalInstanceCount": props.node_counts[props.instance_type],
    }
    block = f"cr-{number:017x}"
    others = {
        f"availability-zones:account={ACCOUNT}:region={region}": [first],
        f"ssm:account={ACCOUNT}:parameterName={props.ami_source}:region={region}": "ami-0123456789abcdef0",
    }
    return dataclasses.replace(props, capacity_reservation=block), pinned(block, facts, region) | others
