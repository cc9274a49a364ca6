"""Test which nodes are reported, with seeded bandwidths."""

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from trainer.check.findings import list_findings, measure_confirmed
from trainer.check.node_devices import NodeDevices, count_efa_devices, count_gpus, read_devices
from trainer.check.rounds import Pair, pair_rounds

SEEDS = range(20)


DISTURBED = 0.1
"""Fraction of the measurements beside which something else uses the network, which then has 20 to 80 % left."""


def bandwidths(nodes: int, rng: random.Random, slow: dict[int, float], *, disturbed: float = 0.0) -> dict[Pair, float]:
    """Return what pairs of nodes measure that differ by some percent; `slow` has the rates of some."""
    rates = [slow.get(node, 1.0) * rng.gauss(40.0, 1.5) for node in range(nodes)]
    pairs = [pair for round_pairs in pair_rounds(nodes) for pair in round_pairs]
    return {
        (a, b): min(rates[a], rates[b])
        * rng.uniform(0.85, 1.0)
        * (rng.uniform(0.2, 0.8) if rng.random() < disturbed else 1.0)
        for a, b in pairs
    }


def measured(nodes: int, rng: random.Random, slow: dict[int, float]) -> Mapping[Pair, float]:
    """Return the bandwidths of a check on a network that others use too."""
    return measure_confirmed(lambda: bandwidths(nodes, rng, slow, disturbed=DISTURBED), nodes)


def devices(nodes: int) -> list[NodeDevices]:
    return [NodeDevices(name=f"worker{n + 1}", gpus=8, expected_gpus=8, efa=4, expected_efa=4) for n in range(nodes)]


@pytest.mark.parametrize("seed", SEEDS)
def test_slow_node_and_missing_gpu_are_reported(seed: int) -> None:
    rng = random.Random(seed)
    nodes = rng.randint(3, 65)
    slow, poor = rng.sample(range(nodes), 2)
    found = devices(nodes)
    found[poor] = NodeDevices(name=found[poor].name, gpus=7, expected_gpus=8, efa=4, expected_efa=4)
    named = list_findings(found, measured(nodes, rng, {slow: rng.uniform(0.02, 0.5)}))
    assert [(finding.node, finding.what) for finding in named] == [
        (found[poor].name, "gpus"),
        (found[slow].name, "slow"),
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_node_is_named_among_equal_nodes(seed: int) -> None:
    rng = random.Random(seed)
    nodes = rng.randint(1, 65)
    assert list_findings(devices(nodes), measured(nodes, rng, {})) == []


def test_of_two_nodes_neither_is_named() -> None:
    assert list_findings(devices(2), {(0, 1): 0.001}) == []


def test_no_node_is_named_for_a_passing_disturbance() -> None:
    rng = random.Random(1)
    passes = iter([bandwidths(6, rng, {2: 0.1}), bandwidths(6, rng, {})])
    assert list_findings(devices(6), measure_confirmed(lambda: next(passes), 6)) == []
    always = measure_confirmed(lambda: bandwidths(6, rng, {2: 0.1}), 6)
    assert [finding.node for finding in list_findings(devices(6), always)] == ["worker3"]


def test_sentences_name_the_figure_and_the_median() -> None:
    found = devices(3)
    found[1] = NodeDevices(name="worker2", efa=3, expected_efa=4)
    assert [finding.sentence for finding in list_findings(found, {(0, 1): 1.0, (1, 2): 1.25, (0, 2): 40.0})] == [
        "worker2 has 3 EFA devices, it should have 4",
        "worker2 is slow: 1.25 GB/s with its fastest partner, below 67% of the nodes' median of 40 GB/s",
    ]


def test_facts_are_read_from_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, text in {
        "etc/deeplearning/node.json": '{"gpu_count": 2, "efa_interfaces": 1}',
        "run/deeplearning/node.json": '{"node_index": 3}',
        "bin/nvidia-smi": "#!/bin/sh\necho 'GPU 0: NVIDIA L4 (UUID: GPU-1)'\necho '  MIG 1g.5gb Device 0:'\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "bin/nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    for device, driver in (("rdmap0", "efa"), ("ibp1", "mlx5_core")):
        (tmp_path / "sys/class/infiniband" / device / "device").mkdir(parents=True)
        (tmp_path / "drivers" / driver).mkdir(parents=True)
        (tmp_path / "sys/class/infiniband" / device / "device/driver").symlink_to(tmp_path / "drivers" / driver)
    assert read_devices(tmp_path) == NodeDevices(name="worker3", gpus=1, expected_gpus=2, efa=1, expected_efa=1)
    assert (count_gpus(""), count_efa_devices(tmp_path / "no")) == (0, 0)
