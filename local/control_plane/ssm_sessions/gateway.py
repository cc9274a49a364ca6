"""Connect users' sessions with the agents of nodes, like AWS's message gateway.

A connection starts with a line, the ticket that an authorized call got (channels.py). An agent keeps one connection,
its control channel, over which the gateway asks for another one for each session. All bytes after the tickets belong to
the session.
AWS uses its own protocol over WebSockets instead.
"""

import queue
import secrets
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Literal

Channel = Literal["control", "agent", "client"]
SILENCE_S: Final = 20.0
"""Seconds without a byte from an agent after which it counts as disconnected; it sends one every five seconds."""
ANSWER_S: Final = 15.0
"""Seconds that an agent may take to connect for a session."""
_CHUNK: Final = 1 << 16


@dataclass(kw_only=True, slots=True)
class Session:
    """A session that a user started."""

    session_id: str
    instance_id: str
    port: int
    token: str = field(default_factory=secrets.token_urlsafe)
    agents: "queue.Queue[socket.socket]" = field(default_factory=queue.Queue)
    """The agent's connection; None until it has answered."""


class Gateway:
    """Listens for agents and users' plugins, and joins them by session."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.port = 0
        self._agents: dict[str, socket.socket] = {}
        self._tickets: dict[str, tuple[Channel, str]] = {}

    def listen(self, host: str) -> None:
        """Listen on a free port until the process ends."""
        listener = socket.create_server((host, 0), backlog=128)
        self.port = listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(listener,), name="session gateway", daemon=True).start()

    def is_connected(self, instance_id: str) -> bool:
        """Return True if an instance's agent keeps its control channel open."""
        return instance_id in self._agents

    def ticket(self, channel: Channel, subject: str) -> str:
        """Return a ticket for one connection: an instance's control channel, or one end of a session."""
        ticket = secrets.token_urlsafe()
        self._tickets[ticket] = (channel, subject)
        return ticket

    def _accept(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError, KeyError, queue.Empty):
            connection.settimeout(SILENCE_S)
            channel, subject = self._tickets.pop(_line(connection))
            if channel == "control":
                self._hold(connection, subject)
            elif channel == "agent":
                self.sessions[subject].agents.put(connection)
                return  # the client's thread carries it from now on
            else:
                self._carry(connection, self.sessions[subject])
        connection.close()

    def _hold(self, connection: socket.socket, instance_id: str) -> None:
        """Keep a control channel until it ends or falls silent."""
        self._agents[instance_id] = connection
        try:
            while connection.recv(1):
                pass
        finally:
            if self._agents.get(instance_id) is connection:
                del self._agents[instance_id]

    def _carry(self, client: socket.socket, session: Session) -> None:
        """Ask the agent for a connection, and copy both ways until one end closes."""
        try:
            self._agents[session.instance_id].sendall(f"{session.session_id} {session.port}\n".encode())
            agent = session.agents.get(timeout=ANSWER_S)
        finally:
            self.sessions.pop(session.session_id, None)
        for end in (client, agent):
            end.settimeout(None)
        with agent:
            back = threading.Thread(target=_copy, args=(agent, client), daemon=True)
            back.start()
            _copy(client, agent)
            back.join()


def _line(connection: socket.socket) -> str:
    """Read the ticket byte by byte, because what follows belongs to the session."""
    read = b""
    while len(read) < 100 and (byte := connection.recv(1)) not in (b"", b"\n"):
        read += byte
    return read.decode(errors="replace")


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copy until the source ends, which ends the session, as the end of sshd or ssh does."""
    with suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


GATEWAY: Final = Gateway()
"""The only gateway, where API calls and connections meet."""
