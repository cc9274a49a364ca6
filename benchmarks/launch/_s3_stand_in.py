"""Serve a directory as a bucket of S3, as light as an HTTP server in Python can be.

    python -m benchmarks.launch._s3_stand_in DIRECTORY

It prints its port. It knows ListObjectsV2, GetObject with ranges and HeadObject, checks no signature, and answers
each request after 20 ms. Small bodies come from memory, large ones by sendfile(2).
"""

import asyncio
import hashlib
import re
import sys
from email.utils import formatdate
from functools import lru_cache
from pathlib import Path
from typing import cast
from urllib.parse import parse_qs

LATENCY_S = 0.02
BUCKET = "bench"
IN_MEMORY = 1 << 20
"""Size of the largest body that is kept in memory."""
PAGE = 1000
"""Objects in a page of a listing, as in S3."""
MODIFIED_S = 1_760_000_000
RANGE = re.compile(rb"\r\nrange: bytes=(\d+)-(\d*)", re.IGNORECASE)


class Store:
    """The objects: every file below a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.sizes = {
            path.relative_to(directory).as_posix(): path.stat().st_size
            for path in sorted(directory.rglob("*"))
            if path.is_file()
        }
        self.bodies = {key: (directory / key).read_bytes() for key, size in self.sizes.items() if size <= IN_MEMORY}
        # The tag of an upload in one piece is its MD5; the large ones count as uploads in parts.
        self.etags = {
            key: md5(self.bodies[key]) if key in self.bodies else f"{md5(key.encode())}-16" for key in self.sizes
        }

    def path(self, key: str) -> Path:
        return self._directory / key

    @lru_cache  # noqa: B019  (the only store of its process, which it outlives)
    def page(self, prefix: str, first: int) -> bytes:
        """Return a page of a listing; its token is the number of its first object."""
        keys = sorted(key for key in self.sizes if key.startswith(prefix))
        shown, is_truncated = keys[first : first + PAGE], first + PAGE < len(keys)
        token = f"<NextContinuationToken>{first + PAGE}</NextContinuationToken>" if is_truncated else ""
        contents = "".join(
            f"<Contents><Key>{key}</Key><LastModified>2025-10-09T08:53:20.000Z</LastModified>"
            f"<ETag>&quot;{self.etags[key]}&quot;</ETag><Size>{self.sizes[key]}</Size><StorageClass>STANDARD</StorageClass>"
            "</Contents>"
            for key in shown
        )
        return (
            '<?xml version="1.0" encoding="UTF-8"?>'
            '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{BUCKET}</Name><Prefix>{prefix}</Prefix><KeyCount>{len(shown)}</KeyCount><MaxKeys>{PAGE}</MaxKeys>"
            f"<EncodingType>url</EncodingType><IsTruncated>{str(is_truncated).lower()}</IsTruncated>"
            f"{token}{contents}</ListBucketResult>"
        ).encode()


class Connection(asyncio.Protocol):
    """A client's connection, which has one request at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._received = b""
        self._sending: asyncio.Task[int] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._received.endswith(b"\r\n\r\n"):
            head, self._received = self._received, b""
            asyncio.get_running_loop().call_later(LATENCY_S, self._answer, head)

    def _answer(self, head: bytes) -> None:
        method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
        path, _, query = target.partition("?")
        key = path.removeprefix(f"/{BUCKET}").removeprefix("/")
        if not key:
            self._list(query)
        elif key not in self._store.sizes:
            self._write("404 Not Found", b"<Error><Code>NoSuchKey</Code></Error>")
        else:
            self._get(key, head, is_head=method == "HEAD")

    def _list(self, query: str) -> None:
        values = {name: texts[0] for name, texts in parse_qs(query).items()}
        body = self._store.page(values.get("prefix", ""), int(values.get("continuation-token", 0)))
        self._write("200 OK", body, "Content-Type: application/xml\r\n")

    def _get(self, key: str, head: bytes, *, is_head: bool) -> None:
        size, requested = self._store.sizes[key], RANGE.search(head)
        start, stop = 0, size
        if requested:
            start, stop = int(requested[1]), min(int(requested[2]) + 1 if requested[2] else size, size)
        fields = (
            f'Content-Type: binary/octet-stream\r\nAccept-Ranges: bytes\r\nETag: "{self._store.etags[key]}"\r\n'
            f"Last-Modified: {formatdate(MODIFIED_S, usegmt=True)}\r\n"
        )
        status = "200 OK"
        if requested:
            status, fields = "206 Partial Content", f"{fields}Content-Range: bytes {start}-{stop - 1}/{size}\r\n"
        if is_head:
            self._write(status, b"", fields, length=stop - start)
        elif key in self._store.bodies:
            self._write(status, self._store.bodies[key][start:stop], fields)
        else:
            self._write(status, b"", fields, length=stop - start)
            self._sending = asyncio.create_task(self._send_file(key, start, stop - start))

    async def _send_file(self, key: str, start: int, count: int) -> int:
        with self._store.path(key).open("rb") as file:
            return await asyncio.get_running_loop().sendfile(self._transport, file, start, count)

    def _write(self, status: str, body: bytes, fields: str = "", *, length: int | None = None) -> None:
        size = len(body) if length is None else length
        self._transport.write(f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\n{fields}\r\n".encode() + body)


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


async def serve(store: Store) -> None:
    """Serve until this process is ended."""
    server = await asyncio.get_running_loop().create_server(lambda: Connection(store), "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(Store(Path(sys.argv[1]))))
