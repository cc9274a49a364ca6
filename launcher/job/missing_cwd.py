"""Report in one line which nodes lack the directory that the job is started in."""

from collections.abc import Sequence

from launcher.hosts.hostfile import Host, first_and_others
from launcher.output.prefixes import Sink


class MissingCwd:
    """Collect one answer a node, and report after the last."""

    def __init__(self, hosts: Sequence[Host], *, wanted: str, notes: Sink) -> None:
        self._hosts = hosts
        self._wanted = wanted
        self._notes = notes
        self._awaited = set(hosts)
        self._lacking: set[Host] = set()

    async def heard(self, host: Host, *, cwd_missing: bool) -> None:
        """Take a node's answer; a node that ends without one counts as having the directory."""
        if host not in self._awaited:
            return
        self._awaited.remove(host)
        if cwd_missing:
            self._lacking.add(host)
        if self._lacking and not self._awaited:
            await self._notes.send(f"launch: {self._line()}\n".encode(errors="surrogateescape"))

    def _line(self) -> str:
        lacking = [host for host in self._hosts if host in self._lacking]
        has, what = ("has", "it runs") if len(lacking) == 1 else ("have", "they run")
        return (
            f"{first_and_others(lacking)} {has} no {self._wanted} to enter: {what} the job in the home directory; "
            "--sync-dst-dir brings it"
        )
