"""Report the nodes without the job's working directory, in one line."""

from collections.abc import Sequence

from launcher.hosts.hostfile import Host, first_and_others
from launcher.output.notes import note
from launcher.output.sink import Sink


class MissingCwd:
    """The nodes' answers; the last answer prints the line."""

    def __init__(self, hosts: Sequence[Host], *, cwd: str, stderr: Sink) -> None:
        self._hosts = hosts
        self._cwd = cwd
        self._stderr = stderr
        self._awaited = set(hosts)
        self._hosts_without_cwd: set[Host] = set()

    async def record_answer(self, host: Host, *, cwd_missing: bool) -> None:
        """Record a node's answer; a node that ends without an answer counts as having the directory."""
        if host not in self._awaited:
            return
        self._awaited.remove(host)
        if cwd_missing:
            self._hosts_without_cwd.add(host)
        if self._hosts_without_cwd and not self._awaited:
            await self._stderr.send(note(self._line()))

    def _line(self) -> str:
        hosts = [host for host in self._hosts if host in self._hosts_without_cwd]
        return (
            f"cannot enter {self._cwd} on {first_and_others(hosts)}; running in the home directory there "
            "(--sync-dst-dir copies it)"
        )
