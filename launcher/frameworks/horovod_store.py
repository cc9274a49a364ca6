"""Serve the rendezvous store of Horovod's Gloo ranks: keys and values over HTTP, like horovodrun.

PUT and GET use /SCOPE/KEY; GET answers 404 until the key exists. A rank that has met the others sends DELETE
/SCOPE/RANK. Once all ranks of a scope have sent it, the store drops the scope's keys, so that the ranks can meet again.
In a scope of unknown size, such as a process set's, DELETE drops only the one key. See
horovod/runner/http/http_server.py and horovod/common/gloo/http_store.cc of Horovod 0.28.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping

REQUEST_TIMEOUT_S = 30.0
MAX_BODY = 1 << 20
"""Longest value in bytes; a rank's address takes a few hundred."""
REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found"}


class RendezvousStore:
    """Values that the ranks have published, by scope."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = sizes
        self._values: defaultdict[str, dict[str, bytes]] = defaultdict(dict)
        self._finished: defaultdict[str, set[str]] = defaultdict(set)

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Return status and body of the answer to a request."""
        _, scope, key, *more = [*path.split("/"), "", ""]
        if not (scope and key) or any(more):
            return 400, b""
        if method == "GET":
            value = self._values[scope].get(key)
            return (404, b"") if value is None else (200, value)
        if method == "PUT":
            self._values[scope][key] = body
        elif method == "DELETE":
            self._finish(scope, key)
        else:
            return 400, b""
        return 200, b""

    def _finish(self, scope: str, rank: str) -> None:
        if scope not in self._sizes:
            self._values[scope].pop(rank, None)
            return
        self._finished[scope].add(rank)
        if len(self._finished[scope]) == self._sizes[scope]:
            del self._finished[scope]
            self._values.pop(scope, None)


async def serve(store: RendezvousStore, *, address: str) -> asyncio.Server:
    """Serve `store` on a free port of `address`."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await asyncio.wait_for(_exchange(store, reader, writer), REQUEST_TIMEOUT_S)
        except (OSError, ValueError, asyncio.TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # The client is not one of our ranks, or its rank died, which the launcher detects elsewhere.
            pass
        finally:
            writer.close()

    return await asyncio.start_server(connected, address, 0)


async def _exchange(store: RendezvousStore, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    request, *lines = head.splitlines()
    method, path, _ = request.split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = int(headers.get("content-length", "0"))
    if not 0 <= length <= MAX_BODY:
        raise ValueError(f"a body has 0 to {MAX_BODY} bytes, got {length}")
    status, answer = store.answer(method, path, await reader.readexactly(length))
    writer.write(
        f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Length: {len(answer)}\r\nConnection: close\r\n\r\n".encode()
        + answer
    )
    await writer.drain()
