"""Test that the name server answers only the names of mount targets, and that the NFS client and the server agree."""

import struct

import pytest

from local.storage.name_server import answer
from local.storage.nfs_client.connection import CALL
from local.storage.rpc import call, file_system_in, reply

HOST = "fs-0123.efs.us-east-1.amazonaws.com"
A, AAAA = 1, 28


def query(name: str, kind: int = A) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack(">6H", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">2H", kind, 1)


def find(name: str) -> str | None:
    return "10.0.1.9" if name == HOST else None


def test_mount_target_has_an_address_under_its_name_in_any_case() -> None:
    for name in (HOST, HOST.upper()):
        response = answer(query(name), find)
        assert response is not None
        assert struct.unpack(">6H", response[:12]) == (7, 0x8180, 1, 1, 0, 0)
        assert response.endswith(bytes([0, 4, 10, 0, 1, 9]))


def test_mount_target_name_has_only_an_ipv4_address_and_others_are_unknown() -> None:
    for request, flags in ((query(HOST, AAAA), 0x8180), (query("pypi.org"), 0x8183)):
        response = answer(request, find)
        assert response is not None
        assert struct.unpack(">6H", response[:12]) == (7, flags, 1, 0, 0, 0)


@pytest.mark.parametrize("garbage", [b"", b"\0" * 11, query(HOST)[:20], b"\xff" * 40])
def test_malformed_dns_query_gets_no_answer(garbage: bytes) -> None:
    assert answer(garbage, find) is None


def test_nfs_client_makes_the_call_that_the_server_answers() -> None:
    assert call(1) == CALL
    message = reply(CALL[4:], "fs-0123")
    assert message is not None
    assert file_system_in(message[4:]) == "fs-0123"
    assert reply(b"\0" * 40, "fs-0123") is None
