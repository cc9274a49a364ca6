"""Find an instance type in the catalog of GPU types or by the rule for CPU families; explain why some do not work."""

import difflib
import re
from typing import Final

from stacks.catalog.deep_learning_ami import GPU_FAMILIES_BY_AMI
from stacks.catalog.gpu_types import GPU_TYPES, InstanceType

_NEURON: Final = re.compile(r"(?P<kind>trn|inf)[0-9].*")
_CPU_NAME: Final = re.compile(
    r"(?P<family>[cmr][5-9]|t[238])(?P<options>[a-z]*)(?:-flex)?\."
    r"(?:(?P<small>nano|micro|small|medium|large)|(?P<times>[1-9][0-9]{0,2})?xlarge|metal-(?P<metal>[1-9][0-9]{0,2})xl)"
)
_ARM_NAME: Final = re.compile(r"(?:a1|t4g|[a-z]{1,3}[0-9]+g[a-z]*|p6e-gb[23]00)\..+")
_COMMON_CPU_SIZES: Final = ("large", "xlarge", *(f"{times}xlarge" for times in (2, 4, 8, 12, 16, 24)))
_SMALL_VCPUS: Final = {"nano": 1, "micro": 1, "small": 1, "medium": 1, "large": 2}


def find(name: str) -> InstanceType | None:
    """Return a type, or None if neither the catalog nor the rule for CPU families knows it."""
    return GPU_TYPES.get(name) or _cpu_type(name)


def is_arm(name: str) -> bool:
    """Return True if a type has a Graviton or Grace processor, on which no x86_64 AMI boots."""
    return _ARM_NAME.fullmatch(name) is not None


def why_refused(name: str, *, own_image: bool) -> str | None:
    """Return why an existing type cannot work, or None."""
    if neuron := _NEURON.fullmatch(name):
        chip = "Trainium" if neuron["kind"] == "trn" else "Inferentia"
        return f"has {chip} chips and no GPU: they need AWS's Neuron SDK, which the nodes do not have"
    known = GPU_TYPES.get(name)
    if known is not None and known.gpu_fraction < 1 and not own_image:
        return "has a part of a GPU, which needs NVIDIA's GRID driver: take g6.xlarge, or set ami to an image with it"
    return None


def is_listed(instance: InstanceType, ami_family: str) -> bool:
    """Return True if AWS lists the type for the AMI family; CPU types are on no list and always pass."""
    return not instance.gpus or instance.family in GPU_FAMILIES_BY_AMI[ami_family]


def nearest(name: str) -> str | None:
    """Return the known type nearest to a misspelled name, or None."""
    family = name.partition(".")[0]
    guesses = (f"{base}.{size}" for base in (family, "c7i", "m7i", "r7i", "t3") for size in _COMMON_CPU_SIZES)
    # Do not suggest types that only a user's own image supports for a typing error.
    usable = [
        each.name for each in GPU_TYPES.values() if each.family == family or not (each.arm or each.gpu_fraction < 1)
    ]
    known = [*usable, *(guess for guess in guesses if _cpu_type(guess))]
    same_family = [candidate for candidate in known if candidate.startswith(f"{family}.")]
    return next(iter(difflib.get_close_matches(name, same_family or known, n=1, cutoff=0.5)), None)


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
