"""Test that a node mounts EFS through its VPC's firewall as the mount target's faults, group and policy let it."""

import pytest

from tests.local.storage.efs_network import CASES, CLOSED, MODULE, SLOW_S, TARGETS, TUNNEL
from tests.local.storage.storage_network import FILE, MountOutcome, outcomes_in

FAILED = 32
DENIED = "mount.nfs4: access denied by server while mounting {address}:/\n"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, MountOutcome]:
    """Return what each mount in one network gave."""
    return outcomes_in(MODULE, tmp_path_factory.mktemp("efs"))


@pytest.mark.parametrize(
    ("case", "printed"),
    [
        ("TLS required, without", DENIED),
        ("anonymous", DENIED),
        (CLOSED, "mount.nfs4: Connection refused or timed out: timed out\n"),
    ],
)
def test_efs_refuses_a_mount(outcomes: dict[str, MountOutcome], case: str, printed: str) -> None:
    file_system, through_tunnel = CASES[case]
    address = "127.0.0.1" if through_tunnel is TUNNEL else TARGETS[file_system].address
    outcome = outcomes[case]
    assert (outcome.printed, outcome.exit_code, outcome.files) == (printed.format(address=address), FAILED, [])


@pytest.mark.parametrize("case", ["without TLS", "TLS required, with", "slow"])
def test_efs_is_mounted(outcomes: dict[str, MountOutcome], case: str) -> None:
    outcome = outcomes[case]
    assert (outcome.printed, outcome.exit_code, outcome.files) == ("", 0, [FILE])


def test_slow_mount_target_delays_the_mount(outcomes: dict[str, MountOutcome]) -> None:
    assert outcomes["slow"].took_s >= SLOW_S
