"""Pool connections across launches: reuse those of earlier launches, and keep this one's."""

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from launcher.hosts.hostfile import Host
from launcher.paths import SSH_AGENT_VARIABLE
from launcher.transport.pool.client import IdleConnection, fetch_idle, keep_idle
from launcher.transport.pool.fingerprints import client_fingerprint, connection_fingerprint, local_host_names
from launcher.transport.process import PipedProcess
from launcher.transport.protocol import WAKE
from launcher.transport.ssh import ssh_command

if TYPE_CHECKING:
    # Wake idle runners before importing asyncio and its dependents (launcher.main).
    from launcher.transport.connection import RunnerConnection


class ConnectionPool:
    """One launch's share of the pool, for its hosts."""

    def __init__(self, hosts: Sequence[Host], *, seconds: float, client: str) -> None:
        self._seconds = seconds
        self._names = [str(host) for host in hosts]
        local_names, agent = local_host_names(), os.environ.get(SSH_AGENT_VARIABLE)
        self._fingerprints = {
            str(host): connection_fingerprint(host, ssh_command(host), client, local_names=local_names, agent=agent)
            for host in hosts
        }
        self._woken: dict[str, PipedProcess] = {}

    def wake(self) -> None:
        """Wake the idle runners that a new connection would also reach; close the others kept for these hosts."""
        for idle in fetch_idle(os.environ, self._names):
            is_valid = idle.fingerprint == self._fingerprints.get(idle.host) and idle.host not in self._woken
            if is_valid and _wake(idle.process):
                self._woken[idle.host] = idle.process
            else:
                idle.process.discard()

    def pop(self, host: Host) -> PipedProcess | None:
        """Remove and return the woken runner on `host`; None if there is none."""
        return self._woken.pop(str(host), None)

    def keep(self, connections: "Sequence[RunnerConnection]") -> None:
        """Keep the connections with idle runners for the next launch, and release them here."""
        # A runner on this machine has the launching shell's limits and other state that no fingerprint covers.
        remote = (connection for connection in connections if not connection.is_local)
        idle = [(connection, process) for connection in remote if (process := connection.idle_process()) is not None]
        kept = [
            IdleConnection(host=str(connection.host), fingerprint=fingerprint, process=process)
            for connection, process in idle
            if (fingerprint := self._fingerprints.get(str(connection.host))) is not None
        ]
        with suppress(OSError, ValueError):  # A daemon of another release may answer otherwise.
            # Two simultaneous launches may both keep connections; one per node is enough.
            for other in fetch_idle(os.environ, self._names):
                other.process.discard()
            keep_idle(os.environ, kept, seconds=self._seconds)
        for connection, _ in idle:
            connection.release()


def _wake(process: PipedProcess) -> bool:
    """Return True if the runner's input is open; the runner answers later."""
    try:
        process.stdin.write(WAKE)
    except OSError:
        return False
    return True


def open_pool(hosts: Sequence[Host], *, seconds: float) -> ConnectionPool | None:
    """Open the pool for these hosts and wake their idle runners; None if pooling is off or the user has no account."""
    if not seconds:
        return None
    try:
        client = client_fingerprint(os.environ)
    except KeyError:
        return None
    pool = ConnectionPool(hosts, seconds=seconds, client=client)
    pool.wake()
    return pool
