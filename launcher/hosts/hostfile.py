"""Parse hosts files, which list a job's machines, in the forms that launch.py and mpirun accept.

Each line is ``host``, ``host:port`` (of its sshd) or either with ``slots=N`` (its number of ranks). Blank lines and
``#`` comments are ignored.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from launcher.errors import NodeError, UsageError
from launcher.validate import whole_number

FORMS = "HOST, HOST:PORT or HOST slots=N"
LOCAL_HOST = "localhost"
MAX_SLOTS = 256
"""Maximum number of ranks on a machine; no machine has that many GPUs, so a larger number is a typing error."""
MAX_PORT = 65535


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """A machine of a job."""

    name: str
    """Host name, address or alias in ssh's configuration."""
    port: int | None = None
    """Port of its sshd. None: from ssh's configuration."""
    slots: int = 0
    """Number of ranks on it. 0: from the command line."""

    def __str__(self) -> str:
        return self.name if self.port is None else f"{self.name}:{self.port}"


def first_and_others(hosts: Sequence[Host | str]) -> str:
    """Name the first host and count the others, to fit on one line."""
    return f"{hosts[0]} and {len(hosts) - 1} more" if len(hosts) > 1 else str(hosts[0])


def merge_errors(errors: Iterable[BaseException]) -> str:
    """Join the messages of errors on one line, merging nodes with the same error."""
    hosts: dict[str, list[str]] = {}
    for error in errors:
        if isinstance(error, NodeError):
            hosts.setdefault(error.cause, []).append(error.host)
        else:
            hosts.setdefault(str(error), [])
    return "; ".join(f"{first_and_others(names)}: {cause}" if names else cause for cause, names in hosts.items())


def parse_hosts(text: str, *, source: str) -> tuple[Host, ...]:
    """Parse the hosts in order; UsageError names `source` and the problem."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    hosts = tuple(_parse_line(line, source=source) for line in lines if line)
    if not hosts:
        raise UsageError(f"{source} names no host")
    repeated = [host for host, count in Counter(map(str, hosts)).items() if count > 1]
    if repeated:
        raise UsageError(f"{source} must name each host once, got {', '.join(repeated)} more than once")
    return hosts


def _parse_line(line: str, *, source: str) -> Host:
    address, *settings = line.split()
    name, colon, port = address.partition(":")
    keys = [setting.partition("=")[0] for setting in settings]
    # ssh would parse a name that starts with a dash as an option.
    if not name or name.startswith("-") or ":" in port or keys not in ([], ["slots"]):
        raise UsageError(f"{source} must hold one {FORMS} per line, got {line!r}")
    slots = settings[0].partition("=")[2] if settings else ""
    return Host(
        name=name,
        port=whole_number(port, name=f"{source}: port of {name}", maximum=MAX_PORT) if colon else None,
        slots=whole_number(slots, name=f"{source}: slots of {name}", maximum=MAX_SLOTS) if settings else 0,
    )


def read_hosts(path: Path) -> tuple[Host, ...]:
    """Read the hosts from the file at `path`."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        hint = "; -H names a file, one host per line" if "," in str(path) else ""
        raise UsageError(f"cannot read the hosts file {path}: {reason}{hint}") from error
    return parse_hosts(text, source=str(path))


@dataclass(frozen=True, kw_only=True, slots=True)
class HostSource:
    """Source of a job's hosts: a hosts file, and the ranks on each."""

    path: Path
    slots: int | None
    """Ranks on each host, overriding the file. None: from the file."""
    default_slots: int
    """Ranks on a host if neither the file nor `slots` gives a number."""
    of_cluster: bool = False
    """True if the cluster writes the file; false if the user does (``-H``)."""

    def read(self) -> tuple[Host, ...]:
        """Read all hosts, in order; UsageError if the file cannot be used."""
        hosts = read_hosts(self.path)
        return tuple(replace(host, slots=self.slots or host.slots or self.default_slots) for host in hosts)
