"""Add instance types that AWS no longer sells but users may still name, because moto does not list them."""

from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPES, InstanceType, InstanceTypeBackend

_GPUS: dict[str, tuple[str, int, int]] = {
    "p2.xlarge": ("K80", 1, 4),
    "p2.8xlarge": ("K80", 8, 32),
    "p2.16xlarge": ("K80", 16, 64),
    "p3.2xlarge": ("V100", 1, 8),
    "p3.8xlarge": ("V100", 4, 32),
    "p3.16xlarge": ("V100", 8, 64),
}
"""GPU model, number of GPUs and number of vCPUs."""

_LIKE = "p3dn.24xlarge"


def install() -> None:
    """Patch moto: describe each type like the one of its generation that moto knows."""
    like: dict[str, Any] = INSTANCE_TYPES[_LIKE]
    for name, (model, gpus, vcpus) in _GPUS.items():
        gpu = like["GpuInfo"]["Gpus"][0] | {"Name": model, "Count": gpus}
        changes = {
            "InstanceType": name,
            "GpuInfo": like["GpuInfo"] | {"Gpus": [gpu]},
            "VCpuInfo": like["VCpuInfo"] | {"DefaultVCpus": vcpus},
        }
        INSTANCE_TYPES[name] = like | changes
        InstanceTypeBackend.instance_types.append(InstanceType(name))
