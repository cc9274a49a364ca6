"""Test the store of Horovod's ranks, with the requests that they send."""

import asyncio
import http.client
import socket

import pytest

from launcher.frameworks import horovod_store
from launcher.frameworks.horovod_store import RendezvousStore, serve


def ask(port: int, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_key_exists_once_it_was_put() -> None:
    async def talk() -> list[tuple[int, bytes]]:
        async with await serve(RendezvousStore({"global": 2}), address="127.0.0.1") as server:
            port = server.sockets[0].getsockname()[1]
            requests = [
                ("GET", "/global/0", b""),
                ("PUT", "/global/0", b"\0address\xff"),
                ("GET", "/global/0", b""),
                ("GET", "/global", b""),
                ("POST", "/global/0", b"x"),
            ]
            return [await asyncio.to_thread(ask, port, *request) for request in requests]

    assert asyncio.run(talk()) == [(404, b""), (200, b""), (200, b"\0address\xff"), (400, b""), (400, b"")]


def test_silent_client_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(horovod_store, "REQUEST_TIMEOUT_S", 0.2)

    async def talk() -> bytes:
        async with await serve(RendezvousStore({}), address="127.0.0.1") as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
            output = await asyncio.wait_for(reader.read(), 60)
            writer.close()
            return output

    assert asyncio.run(talk()) == b""


@pytest.mark.parametrize("request_", [b"nonsense\r\n\r\n", b"PUT /a/b HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b""])
def test_invalid_request_does_not_end_the_store(request_: bytes) -> None:
    def shout(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(request_)
            client.shutdown(socket.SHUT_WR)
            return client.recv(100)

    async def talk() -> tuple[bytes, tuple[int, bytes]]:
        async with await serve(RendezvousStore({}), address="127.0.0.1") as server:
            port = server.sockets[0].getsockname()[1]
            return await asyncio.to_thread(shout, port), await asyncio.to_thread(ask, port, "GET", "/a/b")

    assert asyncio.run(talk()) == (b"", (404, b""))


def test_scope_is_cleared_after_the_rendezvous() -> None:
    store = RendezvousStore({"global": 2})
    store.answer("PUT", "/global/0", b"a")
    store.answer("DELETE", "/global/0", b"")
    store.answer("DELETE", "/global/0", b"")
    assert store.answer("GET", "/global/0", b"") == (200, b"a")
    store.answer("DELETE", "/global/1", b"")
    assert store.answer("GET", "/global/0", b"") == (404, b"")


def test_delete_in_a_scope_of_unknown_size_removes_one_key() -> None:
    store = RendezvousStore({"global": 2})
    for rank in ("0", "1"):
        store.answer("PUT", f"/global_set/{rank}", b"a")
    store.answer("DELETE", "/global_set/0", b"")
    assert store.answer("GET", "/global_set/0", b"") == (404, b"")
    assert store.answer("GET", "/global_set/1", b"") == (200, b"a")
