"""Test the parsing of hosts files."""

from pathlib import Path

import pytest

from launcher.errors import LaunchError, NodeError, UsageError
from launcher.hosts.hostfile import Host, merge_errors, parse_hosts, read_hosts


def test_hosts_keep_their_order_without_blanks_and_comments() -> None:
    text = "# ours\n\ndeeplearning-worker10\n deeplearning-worker2 # the second\n"
    assert parse_hosts(text, source="f") == (Host(name="deeplearning-worker10"), Host(name="deeplearning-worker2"))


def test_host_may_have_a_port_and_slots() -> None:
    text = "a:2222\nb slots=4\nc:22 slots=8 # both\na:2223\n"
    assert parse_hosts(text, source="f") == (
        Host(name="a", port=2222),
        Host(name="b", slots=4),
        Host(name="c", port=22, slots=8),
        Host(name="a", port=2223),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f names no host"),
        ("# only\n", "f names no host"),
        ("a\nb\na\n", "f must name each host once, got a more than once"),
        ("a:22\na:22\n", "f must name each host once, got a:22 more than once"),
        ("a b\n", "f must hold one HOST, HOST:PORT or HOST slots=N per line, got 'a b'"),
        ("-oProxyCommand=x\n", "f must hold one HOST, HOST:PORT or HOST slots=N per line, got '-oProxyCommand=x'"),
        (":22\n", "f must hold one HOST, HOST:PORT or HOST slots=N per line, got ':22'"),
        ("fe80::1\n", "f must hold one HOST, HOST:PORT or HOST slots=N per line, got 'fe80::1'"),
        ("a slots=1 slots=2\n", "f must hold one HOST, HOST:PORT or HOST slots=N per line, got 'a slots=1 slots=2'"),
        ("a max-slots=2\n", "f must hold one HOST, HOST:PORT or HOST slots=N per line, got 'a max-slots=2'"),
        ("a:ssh\n", "f: port of a must be a whole number from 1 to 65535, got 'ssh'"),
        ("a:\n", "f: port of a must be a whole number from 1 to 65535, got ''"),
        ("a:65536\n", "f: port of a must be a whole number from 1 to 65535, got '65536'"),
        ("a slots=0\n", "f: slots of a must be a whole number from 1 to 256, got '0'"),
        ("a slots=\n", "f: slots of a must be a whole number from 1 to 256, got ''"),
    ],
)
def test_wrong_hosts_file_is_a_usage_error(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_hosts(text, source="f")
    assert str(caught.value) == message


def test_hosts_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_bytes(b"\xef\xbb\xbfone\r\ntwo slots=2\r\n")
    assert read_hosts(file) == (Host(name="one"), Host(name="two", slots=2))


def test_reason_shared_by_many_hosts_is_printed_once() -> None:
    missing = "x: is not a directory"
    errors = [NodeError("a", missing), NodeError("b:22", "silent"), NodeError("c", missing), NodeError("d", missing)]
    assert merge_errors(errors) == "a and 2 more: x: is not a directory; b:22: silent"
    assert merge_errors([LaunchError("cannot read x: odd"), LaunchError("odd")]) == "cannot read x: odd; odd"
