"""Define the settings of the machine image and of the nodes' root volume."""

import re
from dataclasses import dataclass
from typing import Final

from stacks.catalog import deep_learning_ami, instance_types
from stacks.settings.base import SettingsError, require, shown
from stacks.settings.capacity import CapacitySettings, nearest_type_hint

_AMI_ID: Final = re.compile(r"ami-(?:[0-9a-f]{8}|[0-9a-f]{17})")
_SSM_PARAMETER: Final = re.compile(r"/[A-Za-z0-9_./-]{1,1010}")


@dataclass(frozen=True, kw_only=True)
class ImageSettings(CapacitySettings):
    """The machine image and the root volume of the nodes."""

    ami: str | None = None
    """``ami-...`` or the name of an SSM parameter, of an Ubuntu 22.04 or later. Default: the Deep
    Learning AMI for the type."""
    root_volume_gib: int = 150
    """Size of each node's root volume in GiB; at least the size of the image."""

    def check(self) -> None:
        """Check that the image can boot on the instance type and fits the root volume."""
        super().check()
        self._check_ami()
        self._check_root_volume()

    def warnings(self) -> dict[str, str]:
        """Warn of a GPU that AWS does not list for the image."""
        warnings = super().warnings()
        known, family = self.instance_type_info, self.ami_family
        if known and family and not instance_types.is_listed(known, family):
            warnings["not-listed"] = (
                f"{self.instance_type} is not on AWS's list for the AMI {family}, which may not drive its "
                f"{known.gpu_model}: set ami to an image that lists it if the nodes find no GPU"
            )
        return warnings

    @property
    def ami_family(self) -> str | None:
        """Return the family of the nodes' Deep Learning AMI; None with the user's own ``ami``."""
        if self.ami is not None:
            return None
        needs_ami = self.instance_type_info is not None and self.instance_type_info.needs_ami
        return None if needs_ami else deep_learning_ami.DEFAULT_AMI_FAMILY

    @property
    def ami_source(self) -> str:
        """Return the source of the machine image: ``ami``, or the SSM parameter of the family."""
        return self.ami or f"{deep_learning_ami.SSM_PATH}/{self.ami_family}/latest/ami-id"

    def _check_ami(self) -> None:
        ami = self.ami
        is_usable = ami is None or _AMI_ID.fullmatch(ami) or _SSM_PARAMETER.fullmatch(ami)
        require(is_usable, "ami", ami, "ami- and 8 or 17 hex digits, or the name of an SSM parameter (/...)")
        self._check_type("instance_type", self.instance_type, is_described=self.gpu_count is not None)
        if self.master_type != self.instance_type:
            self._check_type("master_instance_type", self.master_type, is_described=False)
            if instance_types.is_arm(self.master_type) != instance_types.is_arm(self.instance_type):
                kind = "an ARM type" if instance_types.is_arm(self.instance_type) else "an x86_64 type"
                allowed = f"{kind}, as both boot the image for instance_type {self.instance_type}"
                raise SettingsError(f"master_instance_type must be {allowed}, got {shown(self.master_type)}")

    def _check_type(self, setting: str, name: str, *, is_described: bool) -> None:
        """Check that the image boots on a type; `is_described` means that the user described an unknown type."""
        known = instance_types.find(name)
        if reason := instance_types.why_refused(name, own_image=self.ami is not None):
            raise SettingsError(f"{setting} {shown(name)} {reason}")
        if self.ami is not None:
            return
        if instance_types.is_arm(name):
            raise SettingsError(f"{setting} {shown(name)} is ARM and the default AMI is x86_64, set ami to use it")
        if known is None and not is_described:
            hint = nearest_type_hint(name)
            others = "ami" if setting == "master_instance_type" else "gpu_count or ami"
            raise SettingsError(f"unknown {setting} {shown(name)}{hint} (any type goes with {others})")
        if known is not None and known.needs_ami:
            raise SettingsError(
                f"{setting} {name} needs ami: no current Deep Learning AMI drives its {known.gpu_model}; "
                f"the nearest current type is {known.successor}"
            )

    def _check_root_volume(self) -> None:
        """Check against EC2's limits and the size of the default image; the size of a custom image is unknown."""
        gib, family = self.root_volume_gib, self.ami_family
        require(8 <= gib <= 16384, "root_volume_gib", gib, "8 to 16384")
        minimum = deep_learning_ami.IMAGE_GIB[family] if family else 0
        require(gib >= minimum, "root_volume_gib", gib, f"at least {minimum}, the size of the AMI {family}")
