"""Define what a framework tells the launcher."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from launcher.spec import Job, ProcessSpec

RESTART_COUNT = "TORCHELASTIC_RESTART_COUNT"
"""How often a job was restarted: torchrun's name, set for every framework whose ranks the launcher starts."""
RUN_ID = "TORCHELASTIC_RUN_ID"
"""The job's name, which stays the same across restarts: torchrun's name, set likewise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobTopology:
    """Describe the job's nodes once all of them have answered."""

    job_id: str
    addresses: tuple[str, ...]
    """Each node's address, in rank order."""
    port: int
    """A free port of the first node."""
    rendezvous: tuple[str, int] | None = None
    """Address and port of the launcher's rendezvous store, for a framework that uses one."""
    restart: int = 0
    """How often the job was restarted."""
    max_restarts: int = 0

    @property
    def one_machine(self) -> bool:
        """Whether all nodes are this one machine, under loopback addresses."""
        return all(address.startswith("127.") for address in self.addresses)


Plan: TypeAlias = Callable[[Job, JobTopology], Sequence[tuple[ProcessSpec, ...]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Framework:
    """Describe how a job's processes are planned, and what they need."""

    plan: Plan
    """Returns the processes of each node, in order."""
    own_variables: tuple[str, ...]
    """Variables that the plan sets and a user must not."""
    passed_on: tuple[str, ...] = ()
    """Variables of the launcher's shell that every process gets if they are set."""
    interface_variables: tuple[str, ...] = ()
    """Variables that name a network interface: filled in from the route, unless the user sets them."""
    shared_defaults: Mapping[str, str] = field(default_factory=dict)
    """Variables for a machine with several ranks, unless the machine or the user sets them."""
    has_servers: bool = False
    """Whether there are parameter servers, and one worker drives all GPUs of its machine."""
    required_engine: str | None = None
    """Value of the setting ``engines`` that this framework requires."""
    scopes: Callable[[Job], Mapping[str, int]] | None = None
    """Scopes and their sizes in the launcher's rendezvous store (launcher.frameworks.horovod_store), if it is used."""
