"""The article's figure, from its measurements to its drawing."""

import json
from pathlib import Path

import pytest

from benchmarks._figure1_drawing import draw, efficiency, limit
from benchmarks.figure1 import DATA, DRAWING

MEASURED = {"mbit": 1000, "batch": 64, "weights": 1_000_000}


@pytest.mark.parametrize(
    ("way", "workers", "images_per_s"),
    [
        # A model of 4 MB takes 32 ms at 1 Gbit/s: those of three workers come over the one server's link.
        ("one_server", 4, 4 * 64 / (3 * 0.032)),
        # A ring sends each node 3/4 of it twice; with two nodes it is the whole, as with one server.
        ("ours", 4, 4 * 64 / (1.5 * 0.032)),
        ("horovod", 2, 2 * 64 / 0.032),
        ("one_server", 2, 2 * 64 / 0.032),
        ("two_n_servers", 1, float("inf")),
    ],
)
def test_the_links_allow_so_much(way: str, workers: int, images_per_s: float) -> None:
    assert limit(MEASURED, way, workers) == pytest.approx(images_per_s)


def test_efficiency_is_the_part_of_what_the_same_workers_can_do() -> None:
    row = {"torch_alone": 500.0, "mxnet_alone": 1000.0, "one_server": 250.0, "n_servers": 400.0}
    row |= {"two_n_servers": 500.0, "horovod": 500.0, "ours": 400.0}
    assert efficiency(row, "one_server") == 0.25
    assert efficiency(row, "ours") == 0.8
    # What was measured at a quiet moment shows what the workers can do, too.
    assert efficiency(row | {"horovod": 2000.0}, "one_server") == 0.125


def test_the_drawing_in_the_docs_is_what_was_measured(tmp_path: Path) -> None:
    again = tmp_path / "figure1.svg"
    draw(json.loads(DATA.read_text()), again)
    assert again.read_text() == DRAWING.read_text()
