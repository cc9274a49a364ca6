"""What an engine is to the launcher."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from launcher.job.spec import Job, ProcessSpec

RESTART_COUNT = "TORCHELASTIC_RESTART_COUNT"
"""How often a job was started again: torchrun's name, with every engine whose ranks the launcher starts."""
RUN_ID = "TORCHELASTIC_RUN_ID"
"""The job's name, which stays: torchrun's, with the same engines."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobTopology:
    """What is known of the nodes once all of them have answered."""

    job_id: str
    addresses: tuple[str, ...]
    """Each node's, in rank order."""
    port: int
    """Free on the first node."""
    rendezvous: tuple[str, int] | None = None
    """Address and port of the launcher's rendezvous store, for an engine that wants one."""
    restart: int = 0
    """How often the job was started again."""
    max_restarts: int = 0

    @property
    def one_machine(self) -> bool:
        """Whether the nodes are all one machine, under loopback addresses."""
        return all(address.startswith("127.") for address in self.addresses)


Plan: TypeAlias = Callable[[Job, JobTopology], Sequence[tuple[ProcessSpec, ...]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Framework:
    """How a job's processes are made out, and what they get besides."""

    plan: Plan
    """For each node, in order, its processes."""
    own_variables: tuple[str, ...]
    """What the plan sets and a user must not."""
    passed_on: tuple[str, ...] = ()
    """Variables of the launcher's shell that every process gets, where they are set."""
    interface_variables: tuple[str, ...] = ()
    """Those that name a network interface: filled in from the route, unless the user sets them."""
    shared_defaults: Mapping[str, str] = field(default_factory=dict)
    """Variables of a machine with several ranks, unless the machine or the user sets them."""
    has_servers: bool = False
    """Whether there are parameter servers, and one worker drives all GPUs of its machine."""
    takes: str | None = None
    """What the nodes must have for a script of this engine, by the name that the ``engines`` setting knows."""
    scopes: Callable[[Job], Mapping[str, int]] | None = None
    """For processes that meet at a store of the launcher's (launcher.frameworks.horovod_store): its scopes and their sizes."""
