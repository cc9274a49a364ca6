"""Test how ``-np`` and ``--nproc-per-node`` count ranks."""

import os
from pathlib import Path

import pytest

from launcher.errors import UsageError
from tests.launcher.options.parsing import GPUS, PATH, parse, slots


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    workers = tmp_path / "workers"
    workers.write_text("one\ntwo\nthree\n")
    return {PATH: str(workers), GPUS: "0"}


@pytest.mark.parametrize("option", ["-np", "--num-proc"])
def test_np_counts_ranks_as_mpirun_does_and_fills_nodes(environ: dict[str, str], option: str) -> None:
    assert slots(f"{option} 2 python x", environ) == [1, 1]
    assert slots(f"{option} 16 python x", environ | {GPUS: "8"}) == [8, 8]
    assert slots(f"{option} 6 --nproc-per-node 2 python x", environ) == [2, 2, 2]
    assert parse(f"--launcher local {option} 3 python x", environ).hosts[0].slots == 3
    assert parse(f"--launcher mpi {option} 8 python x", environ | {GPUS: "8"}).framework == "mpi"
    # A single worker of MXNet drives all GPUs of its machine.
    assert slots(f"-s 1 {option} 2 python x", environ | {GPUS: "8"}) == [1, 1]


def test_nproc_per_node_counts_gpus_and_cores(environ: dict[str, str]) -> None:
    cores = len(os.sched_getaffinity(0))
    assert slots("--nproc-per-node gpu python x", environ | {GPUS: "4"}) == [4, 4, 4]
    assert slots("--nproc-per-node auto python x", environ | {GPUS: "4"}) == [4, 4, 4]
    assert slots("--nproc-per-node auto python x", environ) == [cores] * 3
    assert slots("--nproc-per-node cpu python x", environ | {GPUS: "4"}) == [cores] * 3


@pytest.mark.parametrize(
    ("line", "gpus", "message"),
    [
        ("-np 4 x y", "0", "-np must fill whole nodes: one of 1, 2, 3; got 4"),
        ("-np 4 x y", "8", "-np must fill whole nodes: one of 8, 16, 24; got 4"),
        ("-np 0 x y", "0", "-np must be a whole number of at least 1, got '0'"),
        ("-np 2 -n 2 x y", "0", "-np counts ranks and cannot be combined with -n or --nnodes, which count nodes"),
        ("-np 2 --nnodes 2 x y", "0", "-np counts ranks and cannot be combined with -n or --nnodes, which count nodes"),
        ("--launcher local -np 2 -n 2 x y", "0", "-n and -np are the same with --launcher local: give one of them"),
        ("--launcher local -np 257 x y", "0", "-np must be a whole number from 1 to 256, got '257'"),
        ("--nproc-per-node gpu x y", "0", "--nproc-per-node gpu requires GPUs, and this machine has none"),
        ("--nproc-per-node all x y", "0", "--nproc-per-node must be a whole number from 1 to 256, got 'all'"),
    ],
)
def test_contradictory_counts_of_ranks_are_usage_errors(
    line: str, gpus: str, message: str, environ: dict[str, str]
) -> None:
    with pytest.raises(UsageError) as caught:
        parse(line, environ | {GPUS: gpus})
    assert str(caught.value) == message


def test_error_for_np_abbreviates_a_long_list_of_counts(tmp_path: Path) -> None:
    many = tmp_path / "many"
    many.write_text("".join(f"node{number}\n" for number in range(64)))
    with pytest.raises(UsageError, match="-np must fill whole nodes: one of 8, 16, 24 and so on to 512; got 9"):
        parse("-np 9 x y", {PATH: str(many), GPUS: "8"})
