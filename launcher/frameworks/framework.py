"""Define the interface of a framework."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TypeAlias

from launcher.spec import JobSpec, ProcessSpec

RESTART_COUNT = "TORCHELASTIC_RESTART_COUNT"
"""Variable with the number of restarts; torchrun's name, set for the ranks of every framework."""
RUN_ID = "TORCHELASTIC_RUN_ID"
"""Variable with the job's ID, which stays the same across restarts; torchrun's name, set for every framework."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobTopology:
    """The job's nodes once all of them have answered."""

    job_id: str
    addresses: tuple[str, ...]
    """Each node's address, in rank order."""
    port: int
    """A free port of the first node."""
    rendezvous_endpoint: tuple[str, int] | None = None
    """Address and port of the launcher's rendezvous store, for a framework that uses a store."""
    restart_count: int = 0
    """Number of restarts of the job so far."""
    max_restarts: int = 0

    @property
    def is_single_machine(self) -> bool:
        """Return True if all nodes are this machine, under loopback addresses."""
        return all(address.startswith("127.") for address in self.addresses)


Plan: TypeAlias = Callable[[JobSpec, JobTopology], Sequence[tuple[ProcessSpec, ...]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Framework:
    """A framework that `launch` runs: the plan of its processes, and what they require."""

    plan: Plan
    """Function that returns the processes of each node, in order."""
    reserved_variables: tuple[str, ...]
    """Variables that the plan sets, which users must not set."""
    inherited_variables: tuple[str, ...] = ()
    """Variables of the launcher's shell that every process inherits if they are set."""
    interface_variables: tuple[str, ...] = ()
    """Variables with the name of a network interface, set from the route unless the user sets them."""
    shared_defaults: Mapping[str, str] = field(default_factory=dict)
    """Default values of variables on a machine with several ranks; the machine's and the user's values override
    them."""
    has_servers: bool = False
    """True if the framework has parameter servers and one worker per machine, which drives all its GPUs."""
    required_setting: str | None = None
    """Value of the cluster's setting ``frameworks`` that installs this framework; None if every image has it."""
    serve_rendezvous: Callable[[JobSpec, str], AbstractAsyncContextManager[tuple[str, int]]] | None = None
    """Serves the ranks' rendezvous store on the address from which this machine reaches a given node; yields host and
    port. None: the framework needs no store."""

    @property
    def is_in_mxnet_environment(self) -> bool:
        """Return True if the nodes have the framework in the MXNet environment, whose ``python`` it needs."""
        return self.required_setting is not None
