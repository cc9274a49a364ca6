"""Test the count of operations, and the peak speed of devices."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from trainer.metrics.flops import count_flops, find_peak, find_peak_samples_per_s
from trainer.models import ImageShape, build


@pytest.mark.parametrize(
    ("network", "shape", "num_classes", "forward"),
    [
        # 4.09 G multiplications and additions: torchvision, "Models and pre-trained weights", ResNet50's GFLOPS.
        ("resnet50", (3, 224, 224), 1000, 2 * 4.09e9),
        # 41 M: Zhang et al. (2019), "Fixup Initialization", and others; of 20 layers, for CIFAR.
        ("resnet20", (3, 32, 32), 10, 2 * 40.8e6),
    ],
)
def test_flop_counts_match_the_literature(network: str, shape: ImageShape, num_classes: int, forward: float) -> None:
    with torch.device("meta"):
        model = build(network, num_classes=num_classes, image_shape=shape)
    found = count_flops(model, shape)
    # Backward takes twice as many, except in the first layer, whose input needs no gradient.
    assert found == pytest.approx(3 * forward, rel=0.02)


def test_flop_count_changes_neither_network_nor_random_state() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dropout(), nn.Flatten(), nn.LazyLinear(3))
    model(torch.zeros(2, 1, 8, 8))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(1)
    assert count_flops(model, (1, 8, 8)) is not None
    assert torch.equal(torch.rand(1), torch.rand(1, generator=torch.Generator().manual_seed(1)))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_value_dependent_network_has_no_flop_count() -> None:
    class ValueDependent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 2)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            scores: torch.Tensor = self.linear(images.flatten(1))
            return scores if float(scores.detach().sum()) > 0 else -scores

    assert count_flops(ValueDependent(), (1, 2, 2)) is None


@pytest.mark.parametrize(
    ("name", "dtype", "most"),
    [
        ("NVIDIA H200", torch.bfloat16, 989e12),
        ("NVIDIA H100 80GB HBM3", torch.float32, 67e12),
        ("NVIDIA A100-SXM4-40GB", torch.float16, 312e12),
        ("Tesla V100-SXM2-16GB", torch.float16, 125e12),
        ("Tesla V100-SXM2-16GB", torch.bfloat16, None),
        ("NVIDIA H200 NVL", torch.bfloat16, None),
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", torch.bfloat16, None),
        ("NVIDIA GeForce RTX 3090", torch.float32, None),
    ],
)
def test_unknown_gpu_has_no_peak_samples_per_s(name: str, dtype: torch.dtype, most: float | None) -> None:
    found = find_peak(name, dtype)
    assert (found and found[0]) == most


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("NVIDIA A100-SXM4-40GB", 156e12),
        ("NVIDIA H200", 494e12),
        ("NVIDIA B200", 1125e12),
        ("Tesla V100-SXM2-16GB", 15.7e12),
    ],
)
def test_tf32_uses_the_tensor_core_peak(name: str, most: float) -> None:
    found = find_peak(name, torch.float32, allow_tf32=True)
    assert found is not None
    assert found[0] == most


@pytest.fixture
def restored_tf32() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.usefixtures("restored_tf32")
@pytest.mark.parametrize(("allow_tf32", "most"), [(True, 494e12), (False, 67e12)])
def test_peak_speed_follows_the_tf32_setting(monkeypatch: pytest.MonkeyPatch, *, allow_tf32: bool, most: float) -> None:
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "NVIDIA H200")
    torch.backends.cuda.matmul.allow_tf32 = allow_tf32
    assert find_peak_samples_per_s(2.0, torch.float32, device=torch.device("cuda:0")) == most / 2


def test_peak_speed_is_in_samples_per_second(monkeypatch: pytest.MonkeyPatch) -> None:
    flops = count_flops(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), (1, 2, 2))
    # 4 times 2 multiplications and additions forward, and as many for the weights' gradients.
    assert flops == 2 * 2 * 8
    assert find_peak_samples_per_s(flops, torch.float32, device=torch.device("cpu")) is None
    gpu = torch.device("cuda:0")
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "NVIDIA H200")
    assert find_peak_samples_per_s(flops, torch.bfloat16, device=gpu) == pytest.approx(989e12 / flops)
    assert find_peak_samples_per_s(None, torch.bfloat16, device=gpu) is None
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "Voodoo 2")
    assert find_peak_samples_per_s(flops, torch.bfloat16, device=gpu) is None
