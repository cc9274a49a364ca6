"""Read a job's hosts anew for each attempt, as nodes come and go."""

from dataclasses import dataclass, replace
from pathlib import Path

from launcher.hosts.hostfile import Host, read_hosts


@dataclass(frozen=True, kw_only=True, slots=True)
class HostSource:
    """Describe where a job's hosts come from: a hosts file, and the ranks on each."""

    path: Path
    slots: int | None
    """Ranks on each host, whatever the file says. Left out: what the file says."""
    otherwise: int
    """Ranks on a host if neither the file nor `slots` says."""

    def read(self) -> tuple[Host, ...]:
        """Read all hosts, in order; UsageError if the file cannot be used."""
        hosts = read_hosts(self.path)
        return tuple(replace(host, slots=self.slots or host.slots or self.otherwise) for host in hosts)
