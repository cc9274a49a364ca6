"""Parse and show the report of trainer/check.

Any process on a node can forge the report, so validate it, look up nodes by name in the membership, and print text
without control characters.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from cli.aws.nodes import TERMINATE_COMMAND, ClusterNode
from cli.errors import ClusterError
from cli.output import printable

COLUMNS: Final = ("NODE", "INSTANCE", "GPUS", "EFA", "GB/S", "WITH")
MAX_SENTENCE: Final = 200
"""Longest finding, in characters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedNode:
    """One node's devices and figures; the field names are the keys of the JSON object."""

    name: str
    instance_id: str
    gpus: int
    expected_gpus: int | None
    efa: int
    expected_efa: int | None
    gb_per_s: float | None
    """Bus bandwidth with its fastest partner; None for a single node."""
    pairs_gb_per_s: Mapping[str, float]
    """Bus bandwidth with each partner."""

    @property
    def row(self) -> tuple[str, ...]:
        """Return the node's table cells."""
        partners = (f"{name} {figure:.3g}" for name, figure in self.pairs_gb_per_s.items())
        return (
            self.name,
            self.instance_id,
            _of(self.gpus, self.expected_gpus),
            _of(self.efa, self.expected_efa),
            "" if self.gb_per_s is None else f"{self.gb_per_s:.3g}",
            ", ".join(partners),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeFinding:
    """A node to look at; the field names are the keys of the JSON object."""

    node: str
    instance_id: str
    what: str
    found: float
    expected: float
    sentence: str

    @property
    def line(self) -> str:
        """Return the finding, with the command that replaces the node."""
        return f"{self.sentence}; to replace it: {TERMINATE_COMMAND} {self.instance_id}"


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckReport:
    """Measurements that the nodes took of themselves."""

    comm_backend: str
    ranks: int
    gb_per_s: float | None
    """Bus bandwidth between all ranks; None for a single one."""
    median_gb_per_s: float | None
    """Median of the nodes' figures."""
    nodes: tuple[CheckedNode, ...]
    findings: tuple[NodeFinding, ...]

    @property
    def summary(self) -> str:
        """Return the report's first line."""
        nodes = f"{len(self.nodes)} node{'s' * (len(self.nodes) != 1)}"
        figure = "" if self.gb_per_s is None else f": bus bandwidth between all {self.gb_per_s:.3g} GB/s"
        return f"{nodes}, {self.ranks} rank{'s' * (self.ranks != 1)} with {self.comm_backend}{figure}"

    @property
    def last_lines(self) -> list[str]:
        """Return the report's last lines."""
        if self.findings:
            return [finding.line for finding in self.findings]
        alone = len(self.nodes) < 3
        return ["no node lacks devices; it takes three nodes to name a slow one" if alone else "no node stands out"]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as keys of a JSON object."""
        return asdict(self)


def parse_report(output: str, members: Iterable[ClusterNode]) -> CheckReport:
    """Parse the report in the job's output, whose lines begin with the node. Raises ClusterError."""
    by_name = {member.short_name: member.instance_id for member in members}
    for line in reversed(output.splitlines()):
        text = line.partition("] ")[2]
        if text.startswith("{"):
            break
    else:
        raise ClusterError("the check on the nodes printed no report")
    try:
        report = json.loads(text)
        return CheckReport(
            comm_backend=printable(str(report["comm_backend"])),
            ranks=int(report["ranks"]),
            gb_per_s=_number(report["gb_per_s"]),
            median_gb_per_s=_number(report["median_gb_per_s"]),
            nodes=tuple(_node(row, by_name) for row in report["nodes"]),
            findings=tuple(_finding(row, by_name) for row in report["findings"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise ClusterError(f"the check on the nodes printed a report that cannot be used: {error!r}") from error


def _node(values: Any, instance_ids: Mapping[str, str]) -> CheckedNode:
    return CheckedNode(
        name=values["name"],
        instance_id=instance_ids[values["name"]],
        gpus=int(values["gpus"]),
        expected_gpus=_count(values["expected_gpus"]),
        efa=int(values["efa"]),
        expected_efa=_count(values["expected_efa"]),
        gb_per_s=_number(values["gb_per_s"]),
        pairs_gb_per_s={
            name: _finite(figure) for name, figure in values["pairs_gb_per_s"].items() if name in instance_ids
        },
    )


def _finding(values: Any, instance_ids: Mapping[str, str]) -> NodeFinding:
    return NodeFinding(
        node=values["node"],
        instance_id=instance_ids[values["node"]],
        what=printable(str(values["what"])),
        found=_finite(values["found"]),
        expected=_finite(values["expected"]),
        sentence=printable(str(values["sentence"]))[:MAX_SENTENCE],
    )


def _of(found: int, expected: int | None) -> str:
    return str(found) if expected is None else f"{found} of {expected}"


def _count(value: Any) -> int | None:
    return None if value is None else int(value)


def _number(value: Any) -> float | None:
    return None if value is None else _finite(value)


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"a figure must be finite, got {number}")
    return number
