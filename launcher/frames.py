"""What a runner writes to its standard output: frames with a fixed header.

Length-prefixed, so that binary output and unfinished lines arrive as they left.
"""

import enum
import json
import struct
from dataclasses import asdict, dataclass, field

PREAMBLE = b"\0deeplearning-runner 1\n"
"""Comes before the first frame; what a node's shell start-up files print comes before it."""

HEADER = struct.Struct(">BHI")
LONGEST_PAYLOAD = 1 << 20
"""A runner sends what one read gave it; a longer frame is none of a runner's."""


class Kind(enum.IntEnum):
    """What a frame's payload is."""

    READY = 0
    """JSON object: {"port": a port that is free on the node, "address": where its sshd took the connection or null}."""
    STDOUT = 1
    STDERR = 2
    EXIT = 3
    """The rank's exit code in decimal digits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """One piece of news from a node."""

    kind: Kind
    local_rank: int
    payload: bytes


def encode(kind: Kind, payload: bytes, *, local_rank: int = 0) -> bytes:
    """The bytes of one frame."""
    return HEADER.pack(kind, local_rank, len(payload)) + payload


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeSpec:
    """What one node has to run. Travels on the runner's standard input, never on a command line."""

    command: tuple[str, ...]
    cwd: str
    """Used where it exists; the home directory elsewhere."""
    environment: dict[str, str]
    """Variables of all ranks."""
    ranks: tuple[dict[str, str], ...]
    """Variables of each rank; their number is the number of ranks."""
    peer: str
    """Address of another node of the job: the route to it gives the network interface."""
    grace_s: float = field(default=10.0)
    """Time between TERM and KILL."""

    def to_line(self) -> bytes:
        """One line of JSON."""
        return json.dumps(asdict(self)).encode("ascii") + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> "NodeSpec":
        """The spec that `to_line` wrote."""
        values = json.loads(line)
        return cls(
            **{**values, "command": tuple(values["command"]), "ranks": tuple(values["ranks"])},
        )
