"""List the instance types that a cluster can use, and explain why others do not work.

Source: Amazon EC2 Instance Types Guide (accelerated computing specifications, network specifications, EFA).
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from stacks.settings.deep_learning_ami import DEFAULT_AMI_FAMILY, GPU_FAMILIES_BY_AMI


@dataclass(frozen=True, kw_only=True, slots=True)
class InstanceType:
    """The properties of an instance type that the product uses."""

    name: str
    vcpus: int
    gpus: int = 0
    gpu_model: str | None = None
    network_cards: int = 1
    efa_interfaces: int = 0
    """Interfaces for the Elastic Fabric Adapter; 0 if the type has none."""
    ami_family: str | None = DEFAULT_AMI_FAMILY
    """Family of the Deep Learning AMI that drives its GPUs; None if only a custom AMI does."""
    successor: str | None = None
    """Nearest type on sale; None if this one still is."""

    @property
    def family(self) -> str:
        """Return the instance family, such as ``g6`` of ``g6.xlarge``."""
        return self.name.partition(".")[0]

    @property
    def sold(self) -> bool:
        """Return whether the type is still on sale everywhere."""
        return self.successor is None


@dataclass(frozen=True, kw_only=True, slots=True)
class _GpuFamily:
    model: str
    sizes: Mapping[str, tuple[int, int, int, int]]
    """By size: vCPUs, GPUs, network cards, EFA interfaces."""
    ami_family: str | None = DEFAULT_AMI_FAMILY
    successors: Mapping[str, str] | None = None


_G5_SIZES: Final = {
    "xlarge": (4, 1, 1, 0),
    "2xlarge": (8, 1, 1, 0),
    "4xlarge": (16, 1, 1, 0),
    "8xlarge": (32, 1, 1, 1),
    "16xlarge": (64, 1, 1, 1),
    "12xlarge": (48, 4, 1, 1),
    "24xlarge": (96, 4, 1, 1),
    "48xlarge": (192, 8, 1, 1),
}

_GPU_FAMILIES: Final[Mapping[str, _GpuFamily]] = {
    "p2": _GpuFamily(
        model="K80",
        sizes={"xlarge": (4, 1, 1, 0), "8xlarge": (32, 8, 1, 0), "16xlarge": (64, 16, 1, 0)},
        ami_family=None,
        successors={"xlarge": "g6.xlarge", "8xlarge": "g6.48xlarge", "16xlarge": "g6.48xlarge"},
    ),
    "p3": _GpuFamily(
        model="V100",
        sizes={"2xlarge": (8, 1, 1, 0), "8xlarge": (32, 4, 1, 0), "16xlarge": (64, 8, 1, 0)},
        ami_family=None,
        successors={"2xlarge": "g6.2xlarge", "8xlarge": "g6e.12xlarge", "16xlarge": "p4d.24xlarge"},
    ),
    "p3dn": _GpuFamily(
        model="V100",
        sizes={"24xlarge": (96, 8, 1, 1)},
        ami_family=None,
        successors={"24xlarge": "p4d.24xlarge"},
    ),
    "g4dn": _GpuFamily(
        model="T4",
        sizes={
            "xlarge": (4, 1, 1, 0),
            "2xlarge": (8, 1, 1, 0),
            "4xlarge": (16, 1, 1, 0),
            "8xlarge": (32, 1, 1, 1),
            "12xlarge": (48, 4, 1, 1),
            "16xlarge": (64, 1, 1, 1),
            "metal": (96, 8, 1, 1),
        },
    ),
    "g5": _GpuFamily(model="A10G", sizes=_G5_SIZES),
    "g6": _GpuFamily(model="L4", sizes=_G5_SIZES),
    "gr6": _GpuFamily(model="L4", sizes={"4xlarge": (16, 1, 1, 0), "8xlarge": (32, 1, 1, 1)}),
    "g6e": _GpuFamily(model="L40S", sizes={**_G5_SIZES, "24xlarge": (96, 4, 2, 2), "48xlarge": (192, 8, 4, 4)}),
    "g7": _GpuFamily(
        model="RTX PRO 4500",
        sizes={
            "2xlarge": (8, 1, 1, 0),
            "4xlarge": (16, 1, 1, 0),
            "8xlarge": (32, 1, 1, 1),
            "12xlarge": (48, 2, 1, 1),
            "24xlarge": (96, 4, 1, 1),
            "48xlarge": (192, 8, 2, 2),
        },
    ),
    "g7e": _GpuFamily(
        model="RTX PRO 6000",
        sizes={
            "2xlarge": (8, 1, 1, 0),
            "4xlarge": (16, 1, 1, 0),
            "8xlarge": (32, 1, 1, 1),
            "12xlarge": (48, 2, 1, 1),
            "24xlarge": (96, 4, 2, 2),
            "48xlarge": (192, 8, 4, 4),
        },
    ),
    "p4d": _GpuFamily(model="A100", sizes={"24xlarge": (96, 8, 4, 4)}),
    "p4de": _GpuFamily(model="A100", sizes={"24xlarge": (96, 8, 4, 4)}),
    "p5": _GpuFamily(model="H100", sizes={"4xlarge": (16, 1, 1, 1), "48xlarge": (192, 8, 32, 32)}),
    "p5e": _GpuFamily(model="H200", sizes={"48xlarge": (192, 8, 32, 32)}),
    "p5en": _GpuFamily(model="H200", sizes={"48xlarge": (192, 8, 16, 16)}),
    "p6-b200": _GpuFamily(model="B200", sizes={"48xlarge": (192, 8, 8, 8)}),
    # The first of its 17 network cards has no EFA.
    "p6-b300": _GpuFamily(model="B300", sizes={"48xlarge": (192, 8, 17, 16)}),
}

_PART_OF_A_GPU: Final = re.compile(r"gr?6f\..*")
_NEURON: Final = re.compile(r"(?P<kind>trn|inf)[0-9].*")
_CPU_NAME: Final = re.compile(
    r"(?P<family>[cmr][5-9]|t[238])(?P<options>[a-z]*)(?:-flex)?\."
    r"(?:(?P<small>nano|micro|small|medium|large)|(?P<times>[1-9][0-9]{0,2})?xlarge|metal-(?P<metal>[1-9][0-9]{0,2})xl)"
)
_ARM_NAME: Final = re.compile(r"(?:a1|t4g|[a-z]{1,3}[0-9]+g[a-z]*|p6e-gb[23]00)\..+")
_COMMON_CPU_SIZES: Final = ("large", "xlarge", *(f"{times}xlarge" for times in (2, 4, 8, 12, 16, 24)))
_SMALL_VCPUS: Final = {"nano": 1, "micro": 1, "small": 1, "medium": 1, "large": 2}


def find(name: str) -> InstanceType | None:
    """Return a type, or None if neither the catalogue nor the rule for CPU families knows it."""
    return GPU_TYPES.get(name) or _cpu_type(name)


def is_arm(name: str) -> bool:
    """Return whether a type has a Graviton or Grace processor, on which no x86_64 AMI boots."""
    return _ARM_NAME.fullmatch(name) is not None


def why_refused(name: str, *, own_image: bool) -> str | None:
    """Return why an existing type cannot work, or None."""
    if neuron := _NEURON.fullmatch(name):
        chip = "Trainium" if neuron["kind"] == "trn" else "Inferentia"
        return f"has {chip} chips and no GPU: they need AWS's Neuron SDK, which the nodes do not have"
    if _PART_OF_A_GPU.fullmatch(name) and not own_image:
        return "has a part of a GPU, which needs NVIDIA's GRID driver: take g6.xlarge, or set ami to an image with it"
    return None


def is_listed(instance: InstanceType, ami_family: str) -> bool:
    """Return whether AWS lists the type for the AMI family; CPU types are on no list and always pass."""
    return not instance.gpus or instance.family in GPU_FAMILIES_BY_AMI[ami_family]


def nearest(name: str) -> str | None:
    """Return the known type nearest to a misspelt name, or None."""
    family = name.partition(".")[0]
    guesses = (f"{base}.{size}" for base in (family, "c7i", "m7i", "r7i", "t3") for size in _COMMON_CPU_SIZES)
    known = [*GPU_TYPES, *(guess for guess in guesses if _cpu_type(guess))]
    same_family = [candidate for candidate in known if candidate.startswith(f"{family}.")]
    return next(iter(difflib.get_close_matches(name, same_family or known, n=1, cutoff=0.5)), None)


def _gpu_types() -> dict[str, InstanceType]:
    return {
        f"{name}.{size}": InstanceType(
            name=f"{name}.{size}",
            vcpus=vcpus,
            gpus=gpus,
            gpu_model=family.model,
            network_cards=cards,
            efa_interfaces=efa,
            ami_family=family.ami_family,
            successor=family.successors[size] if family.successors else None,
        )
        for name, family in _GPU_FAMILIES.items()
        for size, (vcpus, gpus, cards, efa) in family.sizes.items()
    }


def _cpu_type(name: str) -> InstanceType | None:
    match = _CPU_NAME.fullmatch(name)
    if match is None or is_arm(name):
        return None
    small = match["small"]
    burstable = match["family"].startswith("t")
    if small is None:
        vcpus = 4 * int(match["times"] or match["metal"] or 1)
    elif burstable and (match["family"] != "t2" or small == "medium"):
        vcpus = 2
    else:
        vcpus = _SMALL_VCPUS[small]
    return InstanceType(name=name, vcpus=vcpus)


GPU_TYPES: Final[Mapping[str, InstanceType]] = _gpu_types()
