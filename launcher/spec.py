"""Describe a job, and each node's part of it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from launcher.hosts.hostfile import Host, HostSource
from launcher.paths import log_name
from launcher.sync.request import SyncRequest

DEFAULT_GRACE_S = 10.0
"""Default seconds between SIGTERM and SIGKILL (--grace)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RestartPolicy:
    """Terms on which a job restarts after a failure."""

    max_restarts: int = 0
    """Largest number of restarts."""
    min_nodes: int = 1
    """Smallest number of nodes to restart on."""
    rejoin_timeout_s: float = 0.0
    """Seconds to wait for missing nodes."""
    setup_timeout_s: float = 0.0
    """Further seconds to wait for a new node that is on its way, for its setup."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeRange:
    """Smallest and largest number of nodes."""

    min: int
    max: int


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuePolicy:
    """Terms on which a job waits in the queue for its nodes (launcher.job_queue)."""

    timeout_s: float
    """Longest time in the queue, in seconds; infinite for no limit."""
    exclusive: bool
    """True if its GPUs (or nodes, if they have none) must be free of running jobs. False: trust only the nodes'
    reports."""
    nodes: NodeRange | None = None
    """Nodes that it asks for; None: all that are up when its turn comes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSpec:
    """A job: command, nodes and options."""

    hosts: tuple[Host, ...]
    """The job's nodes in rank order, with their slots."""
    is_local: bool
    """True if the only node is this machine, reached without ssh."""
    framework: str
    """Name of the framework, one of launcher.frameworks.FRAMEWORKS."""
    servers: int
    """Number of parameter servers, for a framework that has them."""
    environment: Mapping[str, str]
    """Variables of every process, besides its node's."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Location of each secret variable, in SSM or Secrets Manager. Only the nodes read the values."""
    command: tuple[str, ...]
    """Argument list of each process."""
    host_source: HostSource | None = None
    """Source of the hosts, read again before a restart. None: the hosts never change."""
    servers_match_workers: bool = False
    """True if a restart on other nodes sets the number of servers to the number of workers."""
    restart_policy: RestartPolicy = RestartPolicy()
    grace_s: float = DEFAULT_GRACE_S
    """Seconds between SIGTERM and SIGKILL."""

    name: str | None = None
    """Name that the user gave it; several jobs may have the same one."""
    detach: bool = False
    """True if the job outlives the shell that started it."""
    durable: bool = False
    """True if the job also outlives its nodes (launcher.durable)."""
    force: bool = False
    """Start the job even on GPUs in use, or if the nodes differ in EFA or setup."""
    has_gpus: bool = False
    """True if the cluster's nodes have GPUs, which no two jobs may share."""
    queue_policy: QueuePolicy | None = None
    """Terms on which the job waits for its nodes; None: it is refused while they are in use."""
    connection_idle_s: float = 0.0
    """Seconds that a successful job's connections stay open for the next launch."""
    sync: SyncRequest | None = None
    """Files to sync to every node before anything starts."""
    venv: str | None = None
    """Directory of the Python environment whose programs take precedence; None for the image's."""
    shown_local_ranks: frozenset[int] | None = None
    """Local ranks of each node whose output is shown, None for all; the logs contain all output."""
    notes: tuple[str, ...] = ()
    """Notes about the command line, for the user."""

    def with_hosts(self, hosts: tuple[Host, ...]) -> "JobSpec":
        """Return the same job on other hosts."""
        servers = sum(host.slots for host in hosts) if self.servers_match_workers else self.servers
        return replace(self, hosts=hosts, servers=servers)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessSpec:
    """One process of a job."""

    name: str
    """Name in failure messages, such as ``rank 3``."""
    rank: int | None = None
    """Rank after which the process is named; None for one with another name, such as a server."""
    label: str
    """Prefix of its output lines."""
    command: tuple[str, ...]
    environment: dict[str, str]
    """Variables of this process only."""
    is_required: bool = True
    """True if the job waits for this process; the job ends once all required processes have."""

    @property
    def log(self) -> str:
        """Return the name of the file that keeps its output."""
        return log_name(self.name)


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeSpec:
    """A node's processes. Sent on the runner's standard input, never on a command line."""

    job_id: str
    host: str
    """Name of the node in the job."""
    processes: tuple[ProcessSpec, ...]
    environment: dict[str, str]
    """Variables of all processes."""
    defaults: dict[str, str] = field(default_factory=dict)
    """Defaults of variables, which the node's own override."""
    interface_variables: tuple[str, ...] = ()
    """Variables to set to the network interface on the route to `peer`."""
    peer: str
    """Address of another node of the job."""
    cwd: str
    """Working directory if it exists, else the home directory. A relative one is in the home directory."""
    path_prefix: list[str] = field(default_factory=list)
    """Directories to put first in PATH if they exist."""
    grace_s: float = DEFAULT_GRACE_S
    """Seconds between SIGTERM and SIGKILL."""
    gpus: list[str] | None = field(default_factory=list)
    """GPUs that the processes take (launcher.transport.gpus_in_use.Gpus). None: all GPUs of the node; empty: none."""
    keep_runner: bool = False
    """True if the runner waits for another job after this one has succeeded."""

    def to_line(self) -> bytes:
        """Return one line of JSON."""
        return json.dumps(self, default=_fields).encode("ascii") + b"\n"


def _fields(spec: NodeSpec | ProcessSpec) -> dict[str, object]:
    """Return fields for JSON. dataclasses.asdict would copy them, which takes longer than everything else here."""
    return {field.name: getattr(spec, field.name) for field in fields(spec)}
