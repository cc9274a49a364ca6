import pytest

from cli.preflight.nodes.reservation import reservation
from tests.cli.preflight.conftest import NEW_STACK, Account

RESERVATION = "cr-0123456789abcdef0"
EXPECTED = {"CapacityReservationIds": [RESERVATION]}
FITS = {
    "State": "active",
    "InstanceType": "g6.xlarge",
    "AvailabilityZone": "eu-west-1b",
    "TotalInstanceCount": 2,
    "AvailableInstanceCount": 2,
}


@pytest.fixture(autouse=True)
def _reserved(account: Account) -> None:
    account.settings |= {"purchase": "reservation", "capacity_reservation": RESERVATION}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({}, "holds 2 x g6.xlarge"),
        ({"State": "expired"}, "is expired"),
        ({"InstanceType": "g5.xlarge"}, "is for g5.xlarge, the nodes are g6.xlarge"),
        ({"AvailabilityZone": "eu-west-1a"}, "is in eu-west-1a, the cluster in eu-west-1b"),
        ({"AvailableInstanceCount": 1}, "has room for 1 of 2 nodes, the master among them"),
    ],
)
def test_the_reservation_must_hold_every_node(account: Account, change: dict[str, object], sentence: str) -> None:
    account.answers("ec2", "describe_capacity_reservations", {"CapacityReservations": [FITS | change]}, EXPECTED)
    account["cloudformation"].add_client_error("describe_stacks", **NEW_STACK)
    found = account.finds(reservation)
    assert (found.level, found.sentence) == ("problem" if change else "ok", f"{RESERVATION} {sentence}")


def test_an_unknown_reservation_is_a_problem(account: Account) -> None:
    account.refuses("ec2", "describe_capacity_reservations", "InvalidCapacityReservationId.NotFound", EXPECTED)
    assert account.finds(reservation).sentence == f"there is no {RESERVATION} in eu-west-1"
