"""Test which address of this machine the peers use, and the check of theirs."""

import socket

import pytest

from launcher.errors import LaunchError
from launcher.hosts.addresses import address_for_peers, check_reachable, is_own_address


def test_only_addresses_of_this_machine_are_its_own() -> None:
    assert is_own_address("127.0.0.1")
    # 192.0.2.0/24 is reserved for documentation (RFC 5737), so no machine has this address.
    own = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    assert not is_own_address(next(a for a in ("192.0.2.201", "198.51.100.7") if a not in own))


@pytest.mark.parametrize(
    ("name", "seen", "address"),
    [
        ("no-such-host.invalid", "192.0.2.1", "192.0.2.1"),
        ("192.0.2.2", "192.0.2.1", "192.0.2.1"),
        ("192.0.2.2", None, "192.0.2.2"),
        ("192.0.2.2", "127.0.0.1", "192.0.2.2"),
        ("no-such-host.invalid", "127.0.0.2", "127.0.0.2"),
    ],
)
def test_sshd_address_is_used_unless_tunnelled(name: str, seen: str | None, address: str) -> None:
    assert address_for_peers(name, seen) == address


def test_name_without_an_address_is_reported() -> None:
    with pytest.raises(LaunchError, match=r"no-such-host\.invalid: "):
        address_for_peers("no-such-host.invalid", None)


def test_unreachable_node_address_is_reported() -> None:
    check_reachable(["a", "b"], ["127.0.0.1", "127.0.0.2"])
    with pytest.raises(LaunchError) as caught:
        check_reachable(["a", "b", "c"], ["192.0.2.1", "127.0.1.1", "192.0.2.3"])
    assert str(caught.value) == "b is 127.0.1.1 here, which a cannot reach"
