"""Parse the launcher's messages: requests, pieces of files, and finally the spec."""

from _collections_abc import Iterator  # importing collections is slow

from launcher.runner.fast_imports import TYPE_CHECKING, parse_json
from launcher.transport.protocol import DATA, HEARTBEAT, REQUEST

if TYPE_CHECKING:
    from typing import Any

    from launcher.spec import NodeSpec
    from launcher.transport.messages import Request


class Inbox:
    """Buffer of input until a message is complete."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._searched = 0
        self._data_left = 0

    def add(self, received: bytes) -> "Iterator[NodeSpec | Request | bytes]":
        """Return the messages that `received` completes; bytes belong to the stream of files and may end anywhere."""
        self._pending += received
        while self._pending:
            if self._data_left:
                piece = bytes(self._pending[: self._data_left])
                del self._pending[: len(piece)]
                self._data_left -= len(piece)
                yield piece
                continue
            end = self._pending.find(b"\n", self._searched)
            if end < 0:
                self._searched = len(self._pending)
                return
            line = bytes(self._pending[: end + 1])
            del self._pending[: end + 1]
            self._searched = 0
            yield from self._line(line)

    def _line(self, line: bytes) -> "Iterator[NodeSpec | Request]":
        if line == HEARTBEAT:
            return
        if line.startswith(DATA):
            self._data_left = int(line.removeprefix(DATA))
        elif line.startswith(REQUEST):
            yield parse_json(line.removeprefix(REQUEST).decode())
        else:
            yield parse_spec(line)


class _Fields:
    """Message fields as attributes."""

    def __init__(self, values: "dict[str, Any]") -> None:
        vars(self).update(values)


def parse_spec(line: bytes) -> "NodeSpec":
    """Parse the result of NodeSpec.to_line into an object with the same fields; importing dataclasses is slow."""
    values = parse_json(line.decode("ascii"))
    values["processes"] = tuple(map(_Fields, values["processes"]))
    return _Fields(values)  # type: ignore[return-value]  # it has every field of a NodeSpec
