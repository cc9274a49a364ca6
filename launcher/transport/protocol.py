"""What a runner writes to its standard output: frames with a fixed header.

Length-prefixed, so that binary output and unfinished lines arrive as they left. On its standard input
it reads the node's spec, one line of JSON, and empty lines, which say that the launcher is alive.
"""

import struct

GREETING = b"\0deeplearning-runner "
"""Comes before the version and the first frame; what a node's shell start-up files print comes before it."""
VERSION = "5"
"""Of frames and spec: raised whenever a runner of another release would misunderstand."""
PREAMBLE = GREETING + VERSION.encode("ascii") + b"\n"

HEADER = struct.Struct(">BHI")
LONGEST_PAYLOAD = 1 << 20
"""A runner sends what one read gave it; a longer frame is none of a runner's."""


HEARTBEAT_INTERVAL_S = 5.0
"""How often each side says something when it has nothing to say."""
HEARTBEAT_TIMEOUT_S = 20.0
"""Who has said nothing for so long is hung, or the network between is cut: each side then ends its part.
Four signs of life: a machine under full load may miss some."""
HEARTBEAT = b"\n"
REQUEST = b"sync "
DATA = b"data "
"""What lines about files begin with; see launcher.sync.messages."""
CALL = b"again\n"
"""Calls a runner that is idle: it says that it is alive and then ready, or ends when it is no longer right."""


class FrameType:
    """What a frame's payload is. No enumeration: enum takes long to import."""

    READY = 0
    """JSON object: {"port": a port that is free on the node, "address": where its sshd took the connection or null,
    "gpus": who uses its GPUs (launcher.job.gpus.GpusInUse)}."""
    STDOUT = 1
    STDERR = 2
    EXIT = 3
    """The process's exit code in decimal digits."""
    ALIVE = 4
    """Empty: the runner is there."""
    NOTE = 5
    """A line for the user about the node."""
    IDLE = 6
    """Empty: nothing of the job is left on the node, and the runner waits for a further one."""
    HOME = 7
    """Said once, before the processes start: empty when they do so in the directory that the spec names, else
    ``home``: for want of that one, they do in the home directory."""
    SYNC = 8
    """The answer to a request about files (launcher.sync.messages)."""


KINDS = frozenset(value for name, value in vars(FrameType).items() if name.isupper())


class Frame:
    """One piece of news from a node."""

    __slots__ = ("kind", "payload", "process")

    def __init__(self, *, kind: int, process: int, payload: bytes) -> None:
        self.kind = kind
        self.process = process
        """Which of the node's processes: an index into its NodeSpec."""
        self.payload = payload


def encode(kind: int, payload: bytes, *, process: int = 0) -> bytes:
    """The bytes of one frame."""
    return HEADER.pack(kind, process, len(payload)) + payload
