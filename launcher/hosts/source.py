"""Where a job's hosts are from: a hosts file, read anew for each attempt, as nodes come and go."""

from dataclasses import dataclass, replace
from pathlib import Path

from launcher.hosts.hostfile import Host, read_hosts


@dataclass(frozen=True, kw_only=True, slots=True)
class HostSource:
    """The machines that a job may use."""

    path: Path
    slots: int | None
    """Ranks on each, whatever the file says. Left out: what it says."""
    otherwise: int
    """Ranks on a machine of which nothing is said."""

    def read(self) -> tuple[Host, ...]:
        """All of them, in order; UsageError when the file cannot be used."""
        hosts = read_hosts(self.path)
        return tuple(replace(host, slots=self.slots or host.slots or self.otherwise) for host in hosts)
