"""Test the networks against the literature, and what is accepted as a user's own."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.trainer.networks import Counting
from trainer.errors import UsageError
from trainer.models import NETWORKS, build, check_network

WEIGHTS = {
    "lenet": {"whole": 520 + 25_050 + 400_500 + 5_010},  # Caffe's and MXNet's examples
    "resnet20": {"whole": 269_722},  # He et al. (2015), table 6: 0.27 M
    "resnet110": {"whole": 1_727_962},  # 1.7 M
    # Like ResNet-110, less a BatchNorm of 16 channels, with three projections and the offsets of the first BatchNorm.
    "resnext110": {"whole": 1_727_962 - 32 + (256 + 32) + (512 + 64) + (2048 + 128) + 3},
    # He et al. (2015), table 1: a 7x7 convolution, four stages, a linear layer; as torchvision's resnet50 has them.
    "resnet50": {
        "whole": 25_557_032,
        "0": 9_408 + 128,
        "1": 215_808,
        "2": 1_219_584,
        "3": 7_098_368,
        "4": 14_964_736,
        "7": 2_049_000,
    },
    # torchvision's alexnet and vgg16, "Models and pre-trained weights": 61100840 and 138357544; Simonyan and Zisserman
    # (2014), table 2: 138 M.
    "alexnet": {"whole": 61_100_840},
    "vgg16": {"whole": 138_357_544},
}
IMAGE = (1, 12, 12)


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


@pytest.mark.parametrize("network", NETWORKS)
def test_weight_count_matches_the_literature(network: str) -> None:
    with torch.device("meta"):
        model = build(network, num_classes=NETWORKS[network].num_classes, image_shape=NETWORKS[network].image_shape)
    found = {stage: count(model if stage == "whole" else model.get_submodule(stage)) for stage in WEIGHTS[network]}
    assert found == WEIGHTS[network]


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("smallest", [True, False])
def test_network_accepts_its_own_and_its_smallest_size(network: str, smallest: bool) -> None:
    channels, height, width = NETWORKS[network].image_shape
    if smallest:
        channels, height, width = 2, NETWORKS[network].min_image_size, NETWORKS[network].min_image_size
    with torch.device("meta"):
        model = build(network, num_classes=7, image_shape=(channels, height, width))
        assert model(torch.empty(2, channels, height, width)).shape == (2, 7)


@pytest.mark.parametrize(("network", "layers"), [("resnet20", 20), ("resnet110", 110), ("resnext110", 110)])
def test_depth_matches_the_name(network: str, layers: int) -> None:
    with torch.device("meta"):
        model = build(network, num_classes=10, image_shape=(3, 32, 32))
    deep = [
        m for m in model.modules() if isinstance(m, nn.Linear) or (isinstance(m, nn.Conv2d) and m.padding != (0, 0))
    ]
    assert len(deep) == layers


def test_resnet50_blocks_start_as_identity() -> None:
    block = build("resnet50", num_classes=2, image_shape=(3, 64, 64)).get_submodule("1.1").eval()
    images = torch.rand(1, 256, 4, 4)
    assert torch.equal(block(images), images)


@pytest.mark.parametrize("keyword", ["num_classes", "classes"])
def test_users_network_gets_the_keywords_that_it_takes(
    keyword: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ("from torch import nn", f"def narrow({keyword}): return nn.Linear(5, {keyword})")
    (tmp_path / "own_networks.py").write_text("\n".join(lines))
    monkeypatch.delitem(sys.modules, "own_networks", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["/nowhere"])
    model = build("own_networks:narrow", num_classes=3, image_shape=IMAGE)
    assert isinstance(model, nn.Linear)
    assert model.out_features == 3


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (
            "tests.trainer.no_networks:build",
            "--network tests.trainer.no_networks:build: no module 'tests.trainer.no_net",
        ),
        ("nowhere.networks:build", "--network nowhere.networks:build: no module 'nowhere' in "),
        (
            "tests.trainer.networks:build",
            "--network tests.trainer.networks:build: build must be a function in .*missing",
        ),
        ("tests.trainer.networks:not_a_function", "not_a_function must be a function in .*/networks.py, it is int"),
        (
            "tests.trainer.networks:extra_arguments",
            "extra_arguments takes width and dropout, "
            "a network gets only num_classes, classes, image_shape, in_chans: give",
        ),
        (
            "tests.trainer.networks:wrong_class_count",
            r"wrong_class_count must return a score for each class, shape \(images, 10\), "
            r"got shape \(1, 3\) for one image",
        ),
        ("tests.trainer.networks:Pair", r"a score for each class, shape \(images, 10\), got tuple for one image"),
        (
            "tests.trainer.networks:float64_weights",
            "float64_weights: weights must be torch.float32, got torch.float64; --dtype sets the compute type",
        ),
        (
            "tests.trainer.networks:nothing",
            "tests.trainer.networks:nothing must return a torch.nn.Module, got NoneType",
        ),
    ],
)
def test_invalid_users_network_is_reported(network: str, message: str) -> None:
    check_network(network)
    with pytest.raises(UsageError, match=message):
        build(network, num_classes=10, image_shape=IMAGE)


def test_checking_a_users_network_does_not_change_it() -> None:
    torch.manual_seed(0)
    Counting(num_classes=10, image_shape=IMAGE)
    undisturbed = torch.get_rng_state()
    torch.manual_seed(0)
    model = build("tests.trainer.networks:Counting", num_classes=10, image_shape=IMAGE)
    assert torch.equal(torch.get_rng_state(), undisturbed)
    assert isinstance(model, Counting)
    assert model.calls == 0
    assert model.training


@pytest.mark.parametrize(
    ("function", "channels"), [("as_in_torchvision", 3), ("as_in_timm", 3), ("as_in_timm", 1), ("Classifier", 1)]
)
def test_library_function_is_called_with_its_own_keywords(function: str, channels: int) -> None:
    network = build(f"tests.trainer.networks:{function}", num_classes=7, image_shape=(channels, 8, 8))
    assert network(torch.zeros(2, channels, 8, 8)).shape == (2, 7)


def test_missing_import_of_a_users_network_keeps_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lacking.py").write_text("import surely_not_installed")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="surely_not_installed"):
        build("lacking:build", num_classes=10, image_shape=IMAGE)
