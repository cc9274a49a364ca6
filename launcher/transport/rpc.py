"""Send requests to a runner before the spec, and receive its answers."""

from typing import Any

from launcher.errors import NodeError
from launcher.transport.connection import RunnerConnection
from launcher.transport.messages import Answer, request_line, unpack_answer
from launcher.transport.protocol import FrameType


class RemoteError(NodeError):
    """A node could not carry out a request."""

    def __init__(self, host: str, cause: str, *, only_lost_neighbor: bool) -> None:
        super().__init__(host, cause)
        self.only_lost_neighbor = only_lost_neighbor
        """True if the cause is a lost neighbor, whose own error explains the failure."""


async def call(connection: RunnerConnection, operation: str, **values: Any) -> Answer:
    """Send a request to a node; return its answer."""
    await connection.send(request_line(operation, **values))
    return await receive_answer(connection)


async def receive_answer(connection: RunnerConnection) -> Answer:
    """Return the next answer; RemoteError if it reports a failure."""
    answer = unpack_answer(await connection.receive(FrameType.ANSWER))
    if "error" in answer:
        raise RemoteError(str(connection.host), answer["error"], only_lost_neighbor=answer["neighbor"])
    return answer
