"""A Capacity Block whose dates were looked up before, and the settings of a cluster in it."""

from typing import Any

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


def pinned(block: str, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the look-up's answer as cdk.context.json holds it."""
    wanted = ":".join(f"propertiesToReturn.{number}={name}" for number, name in enumerate(sorted(FACTS)))
    key = f"cc-api-provider:account={ACCOUNT}:exactIdentifier={block}:{wanted}:region={REGION}"
    return {f"{key}:typeName=AWS$:$:EC2$:$:CapacityReservation": [facts]}
