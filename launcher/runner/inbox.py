"""What the launcher has sent, taken apart: requests about files, pieces of files, and at last the spec."""

import json
from collections.abc import Iterator
from types import SimpleNamespace

from launcher.frames import DATA, REQUEST, SIGN_OF_LIFE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launcher.spec import NodeSpec
    from launcher.sync.messages import Request


class Inbox:
    """Holds what is not complete yet."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._searched = 0
        self._data_left = 0

    def take(self, received: bytes) -> "Iterator[NodeSpec | Request | bytes]":
        """The messages that are complete with what was `received`; bytes are of the stream of files, cut anywhere."""
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
        if line == SIGN_OF_LIFE:
            return
        if line.startswith(DATA):
            self._data_left = int(line.removeprefix(DATA))
        elif line.startswith(REQUEST):
            yield json.loads(line.removeprefix(REQUEST))
        else:
            yield parse_spec(line)


def parse_spec(line: bytes) -> "NodeSpec":
    """What NodeSpec.to_line wrote, as an object with its fields: dataclasses takes long to import."""
    values = json.loads(line)
    values["processes"] = tuple(SimpleNamespace(**process) for process in values["processes"])
    return SimpleNamespace(**values)  # type: ignore[return-value]  # it has all that a NodeSpec has
