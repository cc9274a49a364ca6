"""Determine the rank of this process from the variables of its launcher."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from trainer.errors import UsageError

RENDEZVOUS_VARIABLES: Final = ("MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """Rank of this process and size of the job; by default a single process."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    restart_count: int = 0
    """Number of times that the launcher has restarted this job."""
    job_id: str = ""
    """The job's ID from the launcher, unchanged after each restart; empty without a launcher."""

    def __post_init__(self) -> None:
        for name, value, size in (
            ("RANK", self.rank, self.world_size),
            ("LOCAL_RANK", self.local_rank, self.local_world_size),
        ):
            if not 0 <= value < size:
                raise UsageError(f"{name} must be from 0 to {size - 1}, got {value}")
        if self.world_size % self.local_world_size:
            raise UsageError(
                f"WORLD_SIZE must be a multiple of LOCAL_WORLD_SIZE, got {self.world_size} and {self.local_world_size}"
            )

    def __str__(self) -> str:
        return f"{self.rank}/{self.world_size}"

    @property
    def num_nodes(self) -> int:
        """Return the number of nodes; all run the same number of processes."""
        return self.world_size // self.local_world_size

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "World":
        """Read RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, TORCHELASTIC_RESTART_COUNT and TORCHELASTIC_RUN_ID."""
        world = cls(
            rank=read_number(environment, "RANK", minimum=0),
            world_size=read_number(environment, "WORLD_SIZE", minimum=1),
            local_rank=read_number(environment, "LOCAL_RANK", minimum=0),
            local_world_size=read_number(environment, "LOCAL_WORLD_SIZE", minimum=1),
            restart_count=read_restart_count(environment),
            job_id=read_job_id(environment),
        )
        missing = [name for name in RENDEZVOUS_VARIABLES if not environment.get(name)]
        if world.world_size > 1 and missing:
            raise UsageError(f"WORLD_SIZE is {world.world_size}, but {' and '.join(missing)} is not set")
        if world.world_size > 1:
            read_number(environment, "MASTER_PORT", minimum=1)
        return world


def read_restart_count(environment: Mapping[str, str]) -> int:
    """Return the number of restarts of this job; the launcher sets the variable for every framework."""
    return read_number(environment, "TORCHELASTIC_RESTART_COUNT", minimum=0)


def read_job_id(environment: Mapping[str, str]) -> str:
    """Return the job's ID from the launcher, which sets the variable for every framework."""
    return environment.get("TORCHELASTIC_RUN_ID", "")


def describe_process(environment: Mapping[str, str]) -> str:
    """Return host name, instance ID and process ID as text."""
    instance = environment.get("DEEPLEARNING_INSTANCE_ID", "unknown")
    return f"host={socket.gethostname()} instance={instance} pid={os.getpid()}"


def read_number(environment: Mapping[str, str], name: str, *, minimum: int) -> int:
    """Read an integer; a missing one is its minimum, as for a single process."""
    text = environment.get(name, str(minimum))
    if not text.isdecimal() or int(text) < minimum:
        raise UsageError(f"{name} must be a whole number of at least {minimum}, got {text!r}")
    return int(text)
