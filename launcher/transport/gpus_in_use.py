"""Parse a node's report about its GPUs: written by launcher.runner.gpu_usage, used by launcher.job.gpu_check."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Gpus = tuple[str, ...] | None
"""Indices or beginnings of UUIDs, as in CUDA_VISIBLE_DEVICES; None: all GPUs of the node."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuProcess:
    """A process that computes on a GPU."""

    gpu_index: str
    gpu_uuid: str
    process: str
    """Description of the process, for the user."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GpusInUse:
    """A node's report about its GPUs before the job; empty if it has none or cannot tell."""

    processes: tuple[GpuProcess, ...] = ()
    jobs: Mapping[str, Gpus] = field(default_factory=dict)
    """Running jobs of this launcher on the node, with the GPUs that they have claimed."""

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "GpusInUse":
        """Parse the runner's report (launcher.runner.gpu_usage)."""
        return cls(
            processes=tuple(
                GpuProcess(gpu_index=index, gpu_uuid=uuid, process=process)
                for index, uuid, process in values.get("processes", ())
            ),
            jobs={job: None if gpus is None else tuple(gpus) for job, gpus in values.get("jobs", {}).items()},
        )
