"""Draw a sequence of faults from a seed: the same seed gives the same plan, on any machine. Pure functions: no I/O.

    plan = make_plan(7, count=20, within_s=300, targets=[node_target(n) for n in range(1, 5)])
    print(plan)

``local.chaos.plan_runner`` executes it.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bootstrap.contract import MASTER, MASTER_HOST, MASTER_INDEX, WORKER, NodeType, worker_host
from local.faults.fault_decorator import FAULT_TYPES

KINDS: Final = tuple(name for name, fault in FAULT_TYPES.items() if fault.in_random_plans)
"""Names in FAULT_TYPES of the faults that plans draw."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedTarget:
    """A fault's target: the node with an index at that time or, without an index, one of the nodes of a type."""

    node_index: int | None = None
    node_type: NodeType | None = None
    position: int = 0
    """Position of the node among those of its type in index order, modulo their number."""

    def __post_init__(self) -> None:
        if (self.node_index is None) == (self.node_type is None):
            raise ValueError("a target is a node index or a type of node")

    def resolve(self, instances: Mapping[int, str]) -> int | None:
        """Return the index of the targeted node among existing ones; None if there is none."""
        if self.node_index is not None:
            return self.node_index if self.node_index in instances else None
        candidates = [
            node_index for node_index in sorted(instances) if (node_index == MASTER_INDEX) == (self.node_type == MASTER)
        ]
        return candidates[self.position % len(candidates)] if candidates else None

    def __str__(self) -> str:
        if self.node_index is not None:
            return MASTER_HOST if self.node_index == MASTER_INDEX else worker_host(self.node_index)
        return MASTER_HOST if self.node_type == MASTER else f"any worker (no. {self.position})"


def node_target(node_index: int) -> PlannedTarget:
    return PlannedTarget(node_index=node_index)


ANY_WORKER: Final = PlannedTarget(node_type=WORKER)
"""One worker, drawn by the plan."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedFault:
    """One fault, in seconds since the plan's start."""

    kind: str
    """Name in FAULT_TYPES."""
    at_s: float
    duration_s: float = 0.0
    """Duration; 0 for a fault without one."""
    targets: tuple[PlannedTarget, ...] = ()
    """Targets: none for AWS's API, two for a pair."""

    @property
    def ends_at_s(self) -> float:
        return self.at_s + self.duration_s

    def __str__(self) -> str:
        whom = " and ".join(map(str, self.targets)) or "AWS's API, for all nodes"
        length = f" for {self.duration_s:.1f} s" if self.duration_s else ""
        return f"{self.at_s:7.1f} s  {self.kind:<15} {whom}{length}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Faults sorted by start time."""

    seed: int
    faults: tuple[PlannedFault, ...]

    def overlapping(self) -> list[tuple[PlannedFault, PlannedFault]]:
        """Return the pairs whose second fault starts during the first."""
        return [
            (first, second)
            for number, first in enumerate(self.faults)
            for second in self.faults[number + 1 :]
            if second.at_s < first.ends_at_s
        ]

    def __str__(self) -> str:
        title = f"{len(self.faults)} faults, seed {self.seed}, overlapping pairs: {len(self.overlapping())}"
        return "\n".join([title, *map(str, self.faults)])


def make_plan(
    seed: int,
    *,
    count: int,
    within_s: float,
    targets: Sequence[PlannedTarget],
    kinds: Sequence[str] = KINDS,
    min_per_kind: int = 1,
    durations_s: tuple[float, float] = (5.0, 30.0),
) -> Plan:
    """Draw ``count`` faults that start within ``within_s`` seconds, at least ``min_per_kind`` of each kind.

    Every third one starts during its predecessor, so that faults overlap. Two of one kind never overlap on one target,
    because the end of the first would end the second.
    """
    if count < min_per_kind * len(kinds):
        raise ValueError(f"count must be at least {min_per_kind * len(kinds)} for {len(kinds)} kinds, got {count}")
    if "partition-pair" in kinds and len(set(targets)) < 2:
        raise ValueError("partition-pair needs two targets")
    rng = random.Random(seed)  # noqa: S311  (repeatable on purpose)
    drawn = [*(kind for kind in kinds for _ in range(min_per_kind))]
    drawn += rng.choices(kinds, k=count - len(drawn))
    rng.shuffle(drawn)
    faults: list[PlannedFault] = []
    for kind, at_s in zip(drawn, sorted(rng.uniform(0, within_s) for _ in drawn), strict=True):
        fault = _draw(rng, kind, at_s, targets=targets, durations_s=durations_s)
        if len(faults) % 3 == 2 and faults[-1].duration_s:
            fault = replace(fault, at_s=rng.uniform(faults[-1].at_s, min(faults[-1].ends_at_s, within_s)))
        faults.append(_after_same_kind(fault, faults))
    return Plan(seed=seed, faults=tuple(sorted(faults, key=lambda fault: fault.at_s)))


def _draw(
    rng: random.Random,
    kind: str,
    at_s: float,
    *,
    targets: Sequence[PlannedTarget],
    durations_s: tuple[float, float],
) -> PlannedFault:
    fault_type = FAULT_TYPES[kind]
    duration_s = round(rng.uniform(*durations_s), 1) if fault_type.has_duration else 0.0
    chosen = (_with_random_position(rng, target) for target in rng.sample(targets, fault_type.node_count))
    return PlannedFault(kind=kind, at_s=at_s, duration_s=duration_s, targets=tuple(chosen))


def _with_random_position(rng: random.Random, target: PlannedTarget) -> PlannedTarget:
    return target if target.node_index is not None else replace(target, position=rng.randrange(1000))


def _after_same_kind(fault: PlannedFault, others: Sequence[PlannedFault]) -> PlannedFault:
    """Move a fault behind others of the same kind that may affect the same node at the same time."""
    for other in sorted(_conflicting(fault, others), key=lambda other: other.at_s):
        if other.at_s <= fault.ends_at_s and fault.at_s <= other.ends_at_s:
            fault = replace(fault, at_s=other.ends_at_s + 0.1)
    return replace(fault, at_s=round(fault.at_s, 1))


def _conflicting(fault: PlannedFault, others: Sequence[PlannedFault]) -> Iterator[PlannedFault]:
    by_type = any(target.node_index is None for target in fault.targets)
    for other in others:
        shares = not fault.targets or by_type or not {*fault.targets}.isdisjoint(other.targets)
        if other.kind == fault.kind and (shares or any(target.node_index is None for target in other.targets)):
            yield other
