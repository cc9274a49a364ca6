"""Which process of the job this one is, as the launcher says through the environment."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from trainer.errors import UsageError

RENDEZVOUS_VARIABLES: Final = ("MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranks:
    """Place of this process in the job. Without a launcher: the only process."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    restarts: int = 0
    """How often the launcher has started this job again."""
    job: str = ""
    """The launcher's name of the job, the same each time it is started again; empty where nobody gave one."""

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
    def machines(self) -> int:
        """Number of machines of the job; each runs equally many processes."""
        return self.world_size // self.local_world_size

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Ranks":
        """Read RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, TORCHELASTIC_RESTART_COUNT and _RUN_ID."""
        ranks = cls(
            rank=read_number(environment, "RANK", minimum=0),
            world_size=read_number(environment, "WORLD_SIZE", minimum=1),
            local_rank=read_number(environment, "LOCAL_RANK", minimum=0),
            local_world_size=read_number(environment, "LOCAL_WORLD_SIZE", minimum=1),
            restarts=read_restarts(environment),
            job=read_job(environment),
        )
        missing = [name for name in RENDEZVOUS_VARIABLES if not environment.get(name)]
        if ranks.world_size > 1 and missing:
            raise UsageError(f"WORLD_SIZE is {ranks.world_size}, but {' and '.join(missing)} is not set")
        if ranks.world_size > 1:
            read_number(environment, "MASTER_PORT", minimum=1)
        return ranks


def read_restarts(environment: Mapping[str, str]) -> int:
    """Read how often the launcher has started this job again; it says so with every engine."""
    return read_number(environment, "TORCHELASTIC_RESTART_COUNT", minimum=0)


def read_job(environment: Mapping[str, str]) -> str:
    """Read the launcher's name of the job; it says it with every engine."""
    return environment.get("TORCHELASTIC_RUN_ID", "")


def describe_process(environment: Mapping[str, str]) -> str:
    """Say which process on which machine this is."""
    instance = environment.get("DEEPLEARNING_INSTANCE_ID", "unknown")
    return f"host={socket.gethostname()} instance={instance} pid={os.getpid()}"


def read_number(environment: Mapping[str, str], name: str, *, minimum: int) -> int:
    """Left out, a number is its minimum: the only process of a job has rank 0 of 1."""
    text = environment.get(name, str(minimum))
    if not text.isdecimal() or int(text) < minimum:
        raise UsageError(f"{name} must be a whole number of at least {minimum}, got {text!r}")
    return int(text)
