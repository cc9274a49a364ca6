"""Report the nodes without the job's working directory, in one line."""

from collections.abc import Sequence

from launcher.hosts.hostfile import Host, first_and_others
from launcher.output.prefixes import Sink


class MissingCwd:
    """Answers of the nodes, one each; the last one prints the line."""

    def __init__(self, hosts: Sequence[Host], *, wanted: str, stderr: Sink) -> None:
        self._hosts = hosts
        self._wanted = wanted
        self._stderr = stderr
        self._awaited = set(hosts)
        self._lacking: set[Host] = set()

    async def record_answer(self, host: Host, *, cwd_missing: bool) -> None:
        """Record a node's answer; a node that ends without an answer counts as having the directory."""
        if host not in self._awaited:
            return
        self._awaited.remove(host)
        if cwd_missing:
            self._lacking.add(host)
        if self._lacking and not self._awaited:
            await self._stderr.send(f"launch: {self._line()}\n".encode(errors="surrogateescape"))

    def _line(self) -> str:
        lacking = [host for host in self._hosts if host in self._lacking]
        return (
            f"cannot enter {self._wanted} on {first_and_others(lacking)}; running in the home directory there "
            "(--sync-dst-dir copies it)"
        )
