"""Format what a check found, for people or as JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from trainer.check.findings import Finding, fastest_bandwidths, list_findings
from trainer.check.node_devices import NodeDevices
from trainer.check.rounds import Pair


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """The devices and bandwidths of all nodes."""

    devices: Sequence[NodeDevices]
    pairs: Mapping[Pair, float]
    """GB/s of each pair of nodes."""
    all_nodes_gb_per_s: float | None
    """GB/s between all nodes; None for a single rank."""
    ranks: int
    """Number of ranks that measured."""
    comm_backend: str
    """``nccl`` or ``gloo``."""

    @property
    def findings(self) -> list[Finding]:
        """Return the nodes to report."""
        return list_findings(self.devices, self.pairs)

    def json(self) -> str:
        """Return one line of JSON."""
        fastest = fastest_bandwidths(len(self.devices), self.pairs) if self.pairs else None
        nodes = [
            {
                **asdict(devices),
                "gb_per_s": fastest and fastest[position],
                "pairs_gb_per_s": self._partners(position),
            }
            for position, devices in enumerate(self.devices)
        ]
        findings = [{**asdict(finding), "sentence": finding.sentence} for finding in self.findings]
        return json.dumps(
            {
                "comm_backend": self.comm_backend,
                "ranks": self.ranks,
                "gb_per_s": self.all_nodes_gb_per_s,
                "median_gb_per_s": fastest and median(fastest),
                "nodes": nodes,
                "findings": findings,
            }
        )

    def text(self) -> str:
        """Return the same as lines of text."""
        lines = [f"{self.comm_backend} with {self.ranks} ranks on {len(self.devices)} nodes"]
        if self.all_nodes_gb_per_s is not None:
            lines[0] += f": all-reduce between all of them at {self.all_nodes_gb_per_s:.3g} GB/s"
        for position, devices in enumerate(self.devices):
            partners = ", ".join(f"{bandwidth:.3g} with {name}" for name, bandwidth in self._partners(position).items())
            lines.append(
                f"{devices.name}: {devices.gpus} GPUs, {devices.efa} EFA devices; GB/s: {partners or 'no partner'}"
            )
        return "\n".join([*lines, *(finding.sentence for finding in self.findings)])

    def _partners(self, position: int) -> dict[str, float]:
        """Return the bandwidths of a node's pairs, by the partner's name."""
        return {
            self.devices[b if a == position else a].name: bandwidth
            for (a, b), bandwidth in self.pairs.items()
            if position in (a, b)
        }
