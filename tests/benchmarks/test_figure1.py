"""Test Figure 1 of "Distributed Learning with Apache MXNet and Horovod", from our measurements to the drawing."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks.figure1 import _wide
from benchmarks.figure1._drawing import cores_limit, draw, efficiency, limit
from benchmarks.figure1.figure1 import DATA, DRAWING
from trainer.models import build

MEASURED = {"mbit": 1000, "batch": 64, "weights": 1_000_000}


@pytest.mark.parametrize(
    ("method", "workers", "images_per_s"),
    [
        # A model of 4 MB takes 32 ms at 1 Gbit/s; the models of three workers arrive over the single server's link.
        ("one_server", 4, 4 * 64 / (3 * 0.032)),
        # A ring sends each node 3/4 of it twice; with two nodes, that equals the complete model, as with one server.
        ("ours", 4, 4 * 64 / (1.5 * 0.032)),
        ("horovod", 2, 2 * 64 / 0.032),
        ("one_server", 2, 2 * 64 / 0.032),
        ("two_n_servers", 1, float("inf")),
    ],
)
def test_speed_limit_follows_from_the_links(method: str, workers: int, images_per_s: float) -> None:
    assert limit(MEASURED, method, workers) == pytest.approx(images_per_s)


def test_network_is_as_large_as_resnet_50() -> None:
    with torch.device("meta"):
        built, resnet = (
            build(network, num_classes=num_classes, image_shape=shape)
            for network, num_classes, shape in (
                ("benchmarks.figure1._wide:in_torch", _wide.NUM_CLASSES, _wide.IMAGE_SHAPE),
                ("resnet50", 1000, (3, 224, 224)),
            )
        )
        assert built(torch.empty(2, *_wide.IMAGE_SHAPE)).shape == (2, _wide.NUM_CLASSES)
    weights, literature = (sum(parameter.numel() for parameter in model.parameters()) for model in (built, resnet))
    assert weights == _wide.WEIGHTS
    assert weights == pytest.approx(literature, rel=0.01)


COMPUTED = MEASURED | {
    "cores": 2,
    "cpu_s_per_step": {"1": {"torch_alone": 0.5}, "4": {"torch_alone": 2.0, "ours": 3.0}},
    "images_per_s": {"1": {"ours": 96.0}, "4": {"ours": 64.0}},
}


def test_speed_limit_follows_from_the_cpu_time() -> None:
    # Four workers use 3 seconds of CPU time for 256 images, and two cores provide 2 per second.
    assert cores_limit(COMPUTED, "ours", 4) == pytest.approx(256 / 1.5)


def test_efficiency_is_relative_to_workers_without_communication() -> None:
    assert efficiency(COMPUTED, "ours", 4) == pytest.approx(64 / 256)
    # One worker has one core.
    assert efficiency(COMPUTED, "ours", 1) == pytest.approx(96 / 128)


def test_figure_in_the_docs_matches_the_measured_data(tmp_path: Path) -> None:
    again = tmp_path / "figure1.svg"
    draw(json.loads(DATA.read_text()), again)
    assert again.read_text() == DRAWING.read_text()
