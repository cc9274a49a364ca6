"""Parse what a node reports about its GPUs before a job."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Gpus = tuple[str, ...] | None
"""Indices or beginnings of UUIDs, as in CUDA_VISIBLE_DEVICES; None: all GPUs of the node."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GpusInUse:
    """Hold what a node reported about its GPUs before the job; empty if it has none or cannot tell."""

    processes: tuple[tuple[str, str, str], ...] = ()
    """Index and UUID of a GPU, and who computes on it."""
    jobs: Mapping[str, Gpus] = field(default_factory=dict)
    """Running jobs of ours on the node, with the GPUs that they have claimed."""

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "GpusInUse":
        """Parse what the runner sent (launcher.runner.gpus)."""
        return cls(
            processes=tuple((one[0], one[1], one[2]) for one in values.get("processes", ())),
            jobs={job: None if gpus is None else tuple(gpus) for job, gpus in values.get("jobs", {}).items()},
        )
