import socket

import pytest

from launcher.errors import UsageError
from launcher.hosts import is_here, parse_hosts


def test_hosts_keep_their_order_without_blanks_and_comments() -> None:
    text = "# ours\n\ndeeplearning-worker10\n deeplearning-worker2 # the second\n"
    assert parse_hosts(text, source="f") == ("deeplearning-worker10", "deeplearning-worker2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f names no host"),
        ("# only\n", "f names no host"),
        ("a\nb\na\n", "f must name each host once, got a more than once"),
        ("a b\n", "f must hold one host name a line, got 'a b'"),
        ("-oProxyCommand=x\n", "f must hold one host name a line, got '-oProxyCommand=x'"),
    ],
)
def test_fails_when_the_file_is_wrong(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_hosts(text, source="f")
    assert str(caught.value) == message


def test_an_address_is_here_when_the_machine_has_it() -> None:
    assert is_here("127.0.0.1")
    # 192.0.2.0/24 is kept for documentation: RFC 5737; take one that is nobody's here.
    own = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    assert not is_here(next(a for a in ("192.0.2.201", "198.51.100.7") if a not in own))
