"""Define the protocol of launcher and runner: frames one way, lines the other.

The runner writes frames with a fixed header to its standard output. They are length-prefixed, so that binary output and
unfinished lines arrive unchanged. On its standard input it reads lines: requests, some followed by pieces of files
(launcher.transport.messages); the node's spec, in JSON; empty lines, which are the launcher's heartbeats; and, when the
runner is idle after a job, the line that wakes it for another.
"""

import struct

GREETING = b"\0deeplearning-runner "
"""Start of the runner's output; it follows anything that a node's shell start-up files print."""
PROTOCOL_VERSION = "11"
"""Version of frames and spec; raise it when a runner of another release would misunderstand them."""
PREAMBLE = GREETING + PROTOCOL_VERSION.encode("ascii") + b"\n"

HEADER = struct.Struct(">BHI")
MAX_PAYLOAD = 1 << 20
"""Longest payload of a frame, in bytes: a runner sends each read as one frame."""

HEARTBEAT_INTERVAL_S = 5.0
"""Seconds after which each side sends a heartbeat if it has sent nothing else."""
HEARTBEAT_TIMEOUT_S = 20.0
"""Seconds of silence after which a peer counts as hung or disconnected, and the other side ends its part of the job.
Four heartbeats, because a machine under full load may miss some."""
AFTER_GRACE_S = 10.0
"""Seconds beyond the grace period that a node may take to end its processes before its connection is cut."""
CANNOT_RUN, NOT_FOUND = 126, 127
"""Exit codes of a command that cannot be run or does not exist (POSIX.1-2017, Shell, 2.8.2)."""
HEARTBEAT = b"\n"
REQUEST = b"request "
DATA = b"data "
"""First words of the lines of requests and of their data; see launcher.transport.messages."""
WAKE = b"again\n"
"""Line that wakes an idle runner, which then reports ready, or ends if its session is out of date."""


class FrameType:
    """Types of a frame's payload. Not an Enum, because importing enum is slow."""

    READY = 0
    """JSON object: {"port": a free port of the node, "address": where its sshd took the connection or null,
    "efa": number of its Elastic Fabric Adapters, "setup": contents of contract.SETUP_STATE_FILE, "gpus": what uses its
    GPUs (launcher.transport.gpus_in_use.GpusInUse)}."""
    STDOUT = 1
    STDERR = 2
    EXIT = 3
    """The process's exit code in decimal digits."""
    HEARTBEAT = 4
    """Empty: the node is alive."""
    NOTE = 5
    """A line about the node, for the user."""
    IDLE = 6
    """Empty: nothing of the job is left on the node, and the runner waits for another job."""
    CWD = 7
    """CWD_PRESENT or CWD_MISSING, sent once before the processes start."""
    ANSWER = 8
    """Answer to a request before the spec: files, frameworks, venv or secrets (launcher.transport.messages)."""


CWD_PRESENT, CWD_MISSING = b"", b"home"
"""Payloads of FrameType.CWD: the processes start in the spec's directory, or, if the node lacks it, in the home
directory."""
FRAME_TYPES = frozenset(value for name, value in vars(FrameType).items() if name.isupper())


class Frame:
    """One message from a node."""

    __slots__ = ("kind", "payload", "process")

    def __init__(self, *, kind: int, process: int, payload: bytes) -> None:
        self.kind = kind
        self.process = process
        """Index of the process in its NodeSpec."""
        self.payload = payload


def encode(kind: int, payload: bytes, *, process: int = 0) -> bytes:
    """Return the bytes of one frame."""
    return HEADER.pack(kind, process, len(payload)) + payload
