"""Compare the list of instance types with figures of the EC2 API."""

import gzip
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from stacks.catalog import deep_learning_ami, instance_types
from stacks.catalog.gpu_types import GPU_TYPES


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    """Return the answers of DescribeInstanceTypes that moto ships."""
    spec = find_spec("moto")
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).parent / "ec2/resources/instance_types.json.gz"
    return dict(json.loads(gzip.decompress(path.read_bytes())))


def test_cpu_rule_agrees_with_the_ec2_api(described: dict[str, Any]) -> None:
    families = ("c5", "c6", "c7", "c8", "m5", "m6", "m7", "m8", "r5", "r6", "r7", "r8", "t2.", "t3", "t8")
    names = [n for n in described if n.startswith(families) and not n.endswith(".metal")]
    for name in names:
        api = described[name]
        arm = "arm64" in api["ProcessorInfo"]["SupportedArchitectures"]
        assert instance_types.is_arm(name) is arm, name
        found = instance_types.find(name)
        assert (found and found.vcpus) == (None if arm else api["VCpuInfo"]["DefaultVCpus"]), name


def test_arm_is_distinguished_from_x86_for_every_type(described: dict[str, Any]) -> None:
    linux = {n: d["ProcessorInfo"]["SupportedArchitectures"] for n, d in described.items() if n[:3] != "mac"}
    assert [n for n, a in linux.items() if instance_types.is_arm(n) != ("arm64" in a)] == []
    assert [n for n, known in GPU_TYPES.items() if instance_types.is_arm(n) != known.arm] == []


def test_every_gpu_type_of_today_is_known(described: dict[str, Any]) -> None:
    nvidia = {
        name
        for name, api in described.items()
        if any(gpu["Manufacturer"] == "NVIDIA" for gpu in api.get("GpuInfo", {}).get("Gpus", []))
    }
    assert nvidia - set(GPU_TYPES) == set()
    assert "g7.2xlarge" in nvidia


def test_neuron_types_are_refused_with_any_image(described: dict[str, Any]) -> None:
    neuron = [name for name in described if name.startswith(("trn", "inf"))]
    assert len(neuron) > 8
    for name in neuron:
        assert "Neuron SDK" in (instance_types.why_refused(name, own_image=True) or "")


@pytest.mark.parametrize("name", ["g6f.large", "gr6f.4xlarge"])
def test_parts_of_a_gpu_need_an_image_with_their_driver(name: str) -> None:
    assert "GRID" in (instance_types.why_refused(name, own_image=False) or "")
    assert instance_types.why_refused(name, own_image=True) is None


@pytest.mark.parametrize(
    "name",
    [
        *(n for n, known in GPU_TYPES.items() if known.gpu_fraction == 1),
        "c5.large",
        "t8i.medium",
        "i7i.large",
        "x9.huge",
    ],
)
def test_no_other_type_is_refused(name: str) -> None:
    assert instance_types.why_refused(name, own_image=False) is None


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        *((name, True) for name in ("g6.xlarge", "gr6.4xlarge", "p6-b200.48xlarge", "c7i.large")),
        *((name, False) for name in ("g7.2xlarge", "g7e.2xlarge", "p6-b300.48xlarge")),
    ],
)
def test_types_listed_by_aws_for_the_default_image_are_known(name: str, *, listed: bool) -> None:
    found = instance_types.find(name)
    assert found is not None
    assert instance_types.is_listed(found, deep_learning_ami.DEFAULT_AMI_FAMILY) is listed


@pytest.mark.parametrize("name", ["p3.2xlarge", "p3dn.24xlarge", "p2.xlarge"])
def test_gpu_type_without_a_current_image_has_a_successor_on_sale(name: str) -> None:
    found = GPU_TYPES[name]
    assert found.needs_ami
    assert found.successor is not None
    assert GPU_TYPES[found.successor].sold


@pytest.mark.parametrize("name", ["c5", "c5.", "g6.3xlarge", "c5.metal", "x1.32xlarge", "", "c5.0xlarge"])
def test_unknown_types_are_not_guessed(name: str) -> None:
    assert instance_types.find(name) is None


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("g6.xlrge", "g6.xlarge"),
        ("g6-xlarge", "g6.xlarge"),
        ("P5.48xlarge", "p5.48xlarge"),
        ("c5.xlrge", "c5.xlarge"),
        ("m6i.4xlarg", "m6i.4xlarge"),
    ],
)
def test_misspelled_type_suggests_the_meant_one(typed: str, meant: str) -> None:
    assert instance_types.nearest(typed) == meant


@pytest.mark.parametrize("typed", ["z9.\nxlarge", "t3.\x1fxlarge", "c5.xlarge ", "g6.", ".", "c5.5xlarg"])
def test_suggested_type_exists(typed: str, described: dict[str, Any]) -> None:
    near = instance_types.nearest(typed)
    assert near is None or near in described
