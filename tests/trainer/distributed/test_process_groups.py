"""Test 16-bit gradients between nodes with several ranks each: real ranks, over gloo."""

import itertools
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer.distributed.weights import distance
from tests.trainer.programs import bucketed_trainer, multi_node_trainer, reduce_rank
from tests.trainer.programs.processes import Rank, run, running
from trainer.checkpoint.format import load_checkpoint
from trainer.distributed.process_groups import ProcessGroups, is_regular
from trainer.distributed.reduce.reducers import Communicator
from trainer.distributed.rendezvous import TIMEOUT_MARGIN

Vectors = dict[str, Any]
"""Vectors by type: float32, shape (ranks, values)."""

PROGRAM = (str(Path(reduce_rank.__file__)),)
BOUND = {"fp16": 2.0**-10, "bf16": 2.0**-7}
"""Bound of a sum's error that trainer.distributed.reduce.compressed promises, as a fraction of the ranks' absolute
values."""
MIN_ERROR = {"fp16": 2.0**-38, "bf16": 0.0}
"""Same, as a fraction of the largest values."""
LENGTH = 1001
"""A length that no number of ranks divides."""


def draw(ranks: int) -> Vectors:
    """Return vectors with numbers of all magnitudes, some of them zero."""
    values = np.random.default_rng(0)
    rows = values.standard_normal((ranks, LENGTH)) * 10.0 ** values.uniform(-9, 1, (ranks, LENGTH))
    rows[:, :40] = 0
    return dict.fromkeys(BOUND, rows.astype(np.float32))


def add_up(directory: Path, nodes: str, vectors: Vectors) -> list[Vectors]:
    """Return each rank's sums."""
    np.savez(directory / "vectors.npz", **vectors)
    count = sum(map(int, nodes.split(",")))
    run("vectors.npz", directory=directory, count=count, program=PROGRAM, variables={multi_node_trainer.NODES: nodes})
    return [dict(np.load(directory / f"rank{rank}.npz")) for rank in range(count)]


def check(vectors: Vectors, sums: list[Vectors]) -> None:
    for name, rows in vectors.items():
        exact = rows.astype(np.float64)
        magnitude = np.abs(exact)
        float32 = (len(rows) + 4) * 2.0**-24
        allowed = (BOUND[name] + float32) * magnitude.sum(axis=0) + MIN_ERROR[name] * magnitude.max(axis=1).sum()
        assert (np.abs(sums[0][name] - exact.sum(axis=0)) <= allowed).all()
        assert len({found[name].tobytes() for found in sums}) == 1


def leaving_a_node(directory: Path, nodes: list[int]) -> list[int]:
    """Return the number of bytes that each node sends to others, over all operations.

    In an all-to-all, a rank sends each of the g ranks its g-th part; in an all-gather, its part travels around a ring
    in which every rank but one passes each part on: g - 1 parts per rank, to one neighbor.
    """
    node_of = [node for node, size in enumerate(nodes) for _ in range(size)]
    bytes_of = [0] * len(nodes)
    for rank, node in enumerate(node_of):
        for name, group, handed in json.loads((directory / f"rank{rank}.json").read_text()):
            following = group[(group.index(rank) + 1) % len(group)]
            if name == "all_to_all_single":
                bytes_of[node] += sum(handed // len(group) for other in group if node_of[other] != node)
            elif node_of[following] != node:
                bytes_of[node] += (len(group) - 1) * handed
    return bytes_of


@pytest.mark.parametrize("nodes", [[2, 2], [1, 1, 1]])
def test_node_sends_half_the_bytes_of_a_float32_ring(tmp_path: Path, nodes: list[int]) -> None:
    vectors = draw(sum(nodes))
    check(vectors, add_up(tmp_path, ",".join(map(str, nodes)), vectors))
    # In a ring's all-reduce, every rank, and so every node's last one, sends 2 (n-1)/n of the vector.
    ring = len(vectors) * 2 * 4 * LENGTH * (len(nodes) - 1) / len(nodes)
    for sent in leaving_a_node(tmp_path, nodes):
        assert 0.5 * ring <= sent < 0.52 * ring


def test_unequal_nodes_sum_as_if_each_rank_had_its_own_node(tmp_path: Path) -> None:
    vectors = draw(4)
    check(vectors, add_up(tmp_path, "2,1,1", vectors))
    operations = json.loads((tmp_path / "rank0.json").read_text())
    assert [group for _, group, _ in operations] == [[0, 1, 2, 3]] * 4
    assert "the nodes do not have the same number of ranks each" in (tmp_path / "rank0.log").read_text()


def test_sum_is_rounded_at_most_twice(tmp_path: Path) -> None:
    # Just above the middle of two 16-bit numbers, so it is rounded up; 2 makes every part's scale a power of 2.
    middle, above = 2.0**-11, 2.0**-20
    columns = np.array([[2, 1 + middle + above], [0, middle + above], [0, middle + above], [0, 0]], np.float32)
    vectors = {"fp16": np.tile(columns, 8)}
    check(vectors, add_up(tmp_path, "2,2", vectors))
    # If the ranks of a node rounded too, the same numbers would exceed the bound, which the test would detect.
    rows = columns.astype(np.float16)
    one, other = ((rows[first] + rows[first + 1]).astype(np.float64) for first in (0, 2))
    thrice = [{"fp16": np.tile((one + other).astype(np.float16), 8)}]
    with pytest.raises(AssertionError):
        check(vectors, thrice)


def test_silent_rank_ends_all_within_the_present_timeout(tmp_path: Path) -> None:
    np.savez(tmp_path / "vectors.npz", **draw(4))
    variables = {multi_node_trainer.NODES: "2,2", reduce_rank.SILENT: "3"}
    with running("vectors.npz", directory=tmp_path, count=4, program=PROGRAM, variables=variables) as ranks:
        for rank in ranks[:3]:
            assert rank.wait() == 1
            assert rank.log.read_text().splitlines()[-1].startswith("the all-reduce failed: another rank")


class RecordingGroup:
    """A process group that records its timeouts."""

    def __init__(self) -> None:
        self.timeouts: list[timedelta] = []

    def set_timeout(self, timeout: timedelta) -> None:
        self.timeouts.append(timeout)


def test_timeout_applies_to_all_groups() -> None:
    groups: Any = {"intra_node": RecordingGroup(), "inter_node": RecordingGroup()}
    Communicator(world_size=4, groups=ProcessGroups(**groups)).set_timeout(timedelta(seconds=5))
    assert [group.timeouts for group in groups.values()] == [[timedelta(seconds=5) + TIMEOUT_MARGIN]] * 2


@pytest.mark.parametrize(
    ("places", "regular"),
    [
        ([(0, 2), (1, 2), (0, 2), (1, 2)], True),
        ([(0, 1), (0, 1), (0, 1)], True),
        ([(0, 2), (0, 2), (1, 2), (1, 2)], False),
        ([(0, 1), (0, 2), (1, 2)], False),
        ([(0, 2), (1, 2), (0, 2)], False),
    ],
)
def test_ranks_are_grouped_only_on_regular_nodes(places: list[tuple[int, int]], *, regular: bool) -> None:
    assert is_regular(places) == regular


OPTIONS = (
    *("--benchmark", "1", "--num-epochs", "1", "--num-examples", "120", "--batch-size", "15", "--lr", "0.001"),
    *("--kv-store", "dist_sync", "--model-prefix", "net"),
)


def learn(directory: Path, nodes: str, *options: str, program: str = multi_node_trainer.__file__) -> list[Rank]:
    directory.mkdir()
    return run(
        *OPTIONS,
        *options,
        directory=directory,
        count=sum(map(int, nodes.split(","))),
        program=(program,),
        variables={multi_node_trainer.NODES: nodes},
    )


def test_gc_type_changes_nothing_on_one_node(tmp_path: Path) -> None:
    [plain, _], [compressed, other] = learn(tmp_path / "plain", "2"), learn(tmp_path / "fp16", "2", "--gc-type", "fp16")
    assert compressed.digests == other.digests == plain.digests
    assert "gradients do not leave the only node" in compressed.log.read_text()


def test_run_sums_each_bucket_inside_the_nodes_first(tmp_path: Path) -> None:
    # The batch is per node, and divided among its ranks.
    flat, grouped = ("1,1,1,1", "7"), ("2,2", "14")
    vector, buckets = (str(Path(program)) for program in (multi_node_trainer.__file__, bucketed_trainer.__file__))
    weights = []
    for number, ((nodes, size), program) in enumerate([(flat, vector), (grouped, vector), (grouped, buckets)]):
        place, options = tmp_path / str(number), ("--gc-type", "fp16", "--batch-size", size)
        ranks = learn(place, nodes, *options, program=program)
        assert len({rank.digests[0] for rank in ranks}) == 1
        weights.append(load_checkpoint(place / "net-0001.npz").state.weights)
    # Rounding happens at other places, so the bits differ, but only slightly.
    for one, other in itertools.combinations(weights, 2):
        assert 1e-7 < distance(one, other) < 1e-4
