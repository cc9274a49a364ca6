"""What is to run: the job as it was asked for, and what of it each node gets."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from launcher.hosts.hostfile import Host
from launcher.hosts.source import HostSource
from launcher.paths import JOBS_DIR as JOBS_DIR  # for those who speak of specs too
from launcher.paths import log_name
from launcher.sync.request import SyncRequest

GRACE_S = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Restarts:
    """What becomes of a job that fails."""

    most: int = 0
    """How often it may be started again."""
    min_nodes: int = 1
    """With fewer it is not."""
    rejoin_s: float = 0.0
    """How long nodes are waited for, as long as not all are there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What to run, and where."""

    hosts: tuple[Host, ...]
    """The nodes of the job, in rank order, each with its slots filled in."""
    local: bool
    """Whether the one node is this machine, reached without ssh."""
    framework: str
    """A name of launcher.frameworks.FRAMEWORKS."""
    servers: int
    """Parameter servers, for the engine that has them."""
    environment: Mapping[str, str]
    """Variables that every process gets on top of its node's."""
    command: tuple[str, ...]
    """The argument list that each process runs."""
    host_source: HostSource | None = None
    """Where the hosts are from. Left out: they are given."""
    servers_follow: bool = False
    """Whether there are as many servers as workers, however many these are."""
    restarts: Restarts = Restarts()
    grace_s: float = GRACE_S
    """Time between TERM and KILL."""

    def on(self, hosts: tuple[Host, ...]) -> "Job":
        """The same job on other machines."""
        servers = sum(host.slots for host in hosts) if self.servers_follow else self.servers
        return replace(self, hosts=hosts, servers=servers)

    detach: bool = False
    """Whether it runs on without the shell that started it."""
    force: bool = False
    """Whether it starts on GPUs that are in use."""
    keep_s: float = 0.0
    """How long its connections stay open for the next launch, when it ends well."""
    sync: SyncRequest | None = None
    """What is to be on every node before anything starts."""
    shown: frozenset[int] | None = None
    """The local ranks of each node whose output is shown; left out, all. What the others say is only kept."""
    notes: tuple[str, ...] = ()
    """What to tell the user of the command line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessSpec:
    """One process of a job."""

    name: str
    """What it is called when it fails, such as ``rank 3``."""
    label: str
    """What stands in front of its lines."""
    command: tuple[str, ...]
    environment: dict[str, str]
    """Its own variables."""
    decisive: bool = True
    """Whether the job waits for it: it is over when all that are have ended with 0."""

    @property
    def log(self) -> str:
        """Name of the file that keeps what it says."""
        return log_name(self.name)


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeSpec:
    """What one node has to run. Travels on the runner's standard input, never on a command line."""

    job_id: str
    host: str
    """The node, as the job calls it."""
    processes: tuple[ProcessSpec, ...]
    environment: dict[str, str]
    """Variables of all processes."""
    defaults: dict[str, str] = field(default_factory=dict)
    """Variables that give way to the node's own."""
    interface_variables: tuple[str, ...] = ()
    """Variables that get the name of the network interface on the route to the peer."""
    peer: str
    """Address of another node of the job."""
    cwd: str
    """Used where it exists; the home directory elsewhere. A relative one is in the home directory."""
    bins: list[str] = field(default_factory=list)
    """Directories that come first in PATH, those of them that exist."""
    grace_s: float = GRACE_S
    """Time between TERM and KILL."""
    gpus: list[str] | None = field(default_factory=list)
    """Those that the processes take (launcher.job.gpus.Gpus)."""
    keep: bool = False
    """Whether the runner is to wait for a further job after this one."""

    def to_line(self) -> bytes:
        """One line of JSON."""
        return json.dumps(self, default=_fields).encode("ascii") + b"\n"


def _fields(one: NodeSpec | ProcessSpec) -> dict[str, object]:
    """For JSON. What asdict of dataclasses would copy, and many nodes' specs take it longer than all else here."""
    return {field.name: getattr(one, field.name) for field in fields(one)}
