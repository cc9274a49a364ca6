"""Pool connections across launches: take those that earlier launches stored, and store this one's."""

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from launcher.hosts.hostfile import Host
from launcher.paths import SSH_AGENT_VARIABLE
from launcher.transport.pool.client import IdleConnection, fetch_idle, store_idle
from launcher.transport.pool.conditions import client_fingerprint, connection_fingerprint, fixed_names
from launcher.transport.process import Process
from launcher.transport.protocol import CALL
from launcher.transport.ssh import ssh_command

if TYPE_CHECKING:
    # Idle runners are called before asyncio and everything that needs it is imported (launcher.main).
    from launcher.transport.connection import Connection


class ConnectionPool:
    """Hold one launch's share of the pool, for its hosts."""

    def __init__(self, hosts: Sequence[Host], *, seconds: float, general: str) -> None:
        self._seconds = seconds
        self._names = [str(host) for host in hosts]
        fixed, agent = fixed_names(), os.environ.get(SSH_AGENT_VARIABLE)
        self._fingerprints = {
            str(host): connection_fingerprint(host, ssh_command(host), general, names=fixed, agent=agent)
            for host in hosts
        }
        self._called: dict[str, Process] = {}

    def call(self) -> None:
        """Call the idle runners that a new connection would also reach; end the others stored for these hosts."""
        for one in fetch_idle(os.environ, self._names):
            is_right = one.fingerprint == self._fingerprints.get(one.host) and one.host not in self._called
            if is_right and _call(one.process):
                self._called[one.host] = one.process
            else:
                one.process.discard()

    def pop(self, host: Host) -> Process | None:
        """Remove and return the called runner on `host`, if there is one."""
        return self._called.pop(str(host), None)

    def store(self, connections: "Sequence[Connection]") -> None:
        """Store the connections whose runners are idle, and release them here."""
        # A runner on this machine has the launching shell's limits and other state that no fingerprint covers.
        away = (one for one in connections if not one.is_here)
        idle = [(one, process) for one in away if (process := one.idle_process()) is not None]
        kept = [
            IdleConnection(host=str(one.host), fingerprint=known, process=process)
            for one, process in idle
            if (known := self._fingerprints.get(str(one.host))) is not None
        ]
        with suppress(OSError, ValueError):  # a daemon of another release may answer otherwise
            # Two launches at once may both store connections; one a node is enough.
            for other in fetch_idle(os.environ, self._names):
                other.process.discard()
            store_idle(os.environ, kept, seconds=self._seconds)
        for one, _ in idle:
            one.detach()


def _call(process: Process) -> bool:
    """Return whether the runner's input is open; its own answer comes later."""
    try:
        process.stdin.write(CALL)
    except OSError:
        return False
    return True


def open_pool(hosts: Sequence[Host], *, seconds: float) -> ConnectionPool | None:
    """Open the pool for these hosts and call their idle runners; None if pooling is off or the user has no account."""
    if not seconds:
        return None
    try:
        general = client_fingerprint(os.environ)
    except KeyError:
        return None
    pool = ConnectionPool(hosts, seconds=seconds, general=general)
    pool.call()
    return pool
