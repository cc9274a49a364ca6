"""Define what the launcher must know of an engine."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TypeAlias

from launcher.spec import Job, ProcessSpec

RESTART_COUNT = "TORCHELASTIC_RESTART_COUNT"
"""Variable with the number of restarts; the name is torchrun's, and the ranks of every engine get it."""
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
    """Address and port of the launcher's rendezvous store, for an engine that uses one."""
    restart: int = 0
    """How often the job was restarted."""
    max_restarts: int = 0

    @property
    def one_machine(self) -> bool:
        """Whether all nodes are this one machine, under loopback addresses."""
        return all(address.startswith("127.") for address in self.addresses)


Plan: TypeAlias = Callable[[Job, JobTopology], Sequence[tuple[ProcessSpec, ...]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
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
    required_setting: str | None = None
    """Value of the cluster's setting ``engines`` that installs this engine; None if every image has it."""
    serve_rendezvous: Callable[[Job, str], AbstractAsyncContextManager[tuple[str, int]]] | None = None
    """Serves the store at which the ranks meet, towards a node's address; yields its own address and port."""
