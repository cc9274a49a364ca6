"""Define the settings for the nodes: their number and instance type, their machine image and root volume."""

import re
from dataclasses import dataclass
from typing import Final

from bootstrap import contract
from bootstrap.aws.group_sizes import ClusterSizes, GroupSize
from stacks.catalog import deep_learning_ami, instance_types
from stacks.catalog.gpu_types import InstanceType
from stacks.settings.base import Settings, SettingsError, require, shown

_TYPE: Final = re.compile(r"[a-z0-9-]{1,30}\.[a-z0-9-]{1,30}")
_MAX_GPUS: Final = 16
_MAX_TYPE_LENGTH: Final = 60
_AMI_ID: Final = re.compile(r"ami-(?:[0-9a-f]{8}|[0-9a-f]{17})")
_SSM_PARAMETER: Final = re.compile(r"/[A-Za-z0-9_./-]{1,1010}")


@dataclass(frozen=True, kw_only=True)
class CapacitySettings(Settings):
    """The number of nodes and their instance type."""

    instance_type: str = "g6.xlarge"
    """Type of every node; the default is the least expensive current type with a GPU (NVIDIA L4)."""
    master_instance_type: str | None = None
    """Type of the master, such as ``m7i.xlarge`` for one that only starts jobs. Default: ``instance_type``. A change
    applies to nodes launched after the deploy."""
    master_trains: bool | None = None
    """With true, jobs run on the master too. Default: true only if it has the workers' type."""
    gpu_count: int | None = None
    """GPUs per node. Set it to use an instance type that is not in the catalog."""
    worker_count: int = 1
    """Number of workers. The master is not counted, even if it trains; with 0 the cluster is only the master."""
    min_workers: int | None = None
    """Number of workers without which the deploy fails; the others may join later, and broken ones are replaced.
    Default: all are needed, and a broken one fails the deploy immediately."""

    def check(self) -> None:
        """Check the number of workers and the instance type; ``ImageSettings`` checks that the AMI boots on it."""
        super().check()
        count, maximum = self.worker_count, contract.MAX_WORKERS
        # The table could not serve more agents (docs/healing.md).
        require(0 <= count <= maximum, "worker_count", count, f"0 to {maximum}")
        needed = self.min_workers
        require(needed is None or 0 <= needed <= count, "min_workers", needed, f"0 to worker_count, which is {count}")
        self._check_gpu_count()
        for setting, name in (("instance_type", self.instance_type), ("master_instance_type", self.master_type)):
            if instance_types.find(name) is None and not _TYPE.fullmatch(name):
                hint = _nearest_type_hint(name)
                raise SettingsError(f"{setting} must be FAMILY.SIZE such as g6.xlarge, got {shown(name)}{hint}")
        if not (self.effective_master_trains or count):
            raise SettingsError("worker_count must be at least 1 with a master that does not train, got 0")

    def warnings(self) -> dict[str, str]:
        """Warn of a type that is unknown or not sold everywhere, and of a deploy without a node to train on."""
        warnings = super().warnings()
        if not (self.effective_master_trains or self.needed_workers):
            warnings["no-trainer"] = (
                "min_workers 0 with a master that does not train: the deploy succeeds without a node to train on, "
                "set min_workers to at least 1 unless workers may come later"
            )
        known = self.instance_type_info
        if known is None and not instance_types.is_arm(self.instance_type):
            near = instance_types.nearest(self.instance_type)
            warnings["unknown-type"] = (
                f"instance_type {self.instance_type} is not in the catalog{f' (nearest: {near})' if near else ''}: "
                "only EC2 knows whether it exists, and whether the AMI has drivers for it"
            )
        elif known is not None and known.successor is not None:
            warnings["not-sold"] = (
                f"{self.instance_type} is rarely available now; the nearest current type is {known.successor}"
            )
        return warnings

    @property
    def instance_type_info(self) -> InstanceType | None:
        """Return the catalog's entry of the instance type; None for an unknown type."""
        return instance_types.find(self.instance_type)

    @property
    def master_type(self) -> str:
        """Return the instance type of the master."""
        return self.master_instance_type or self.instance_type

    @property
    def master_instance_type_info(self) -> InstanceType | None:
        """Return the catalog's entry of the master's type; None for an unknown type."""
        return instance_types.find(self.master_type)

    @property
    def effective_master_trains(self) -> bool:
        """Return the setting ``master_trains``, or its default: True if the master has the workers' type."""
        return self.master_type == self.instance_type if self.master_trains is None else self.master_trains

    @property
    def node_counts(self) -> dict[str, int]:
        """Return the number of nodes per instance type."""
        counts = {self.instance_type: self.worker_count}
        counts[self.master_type] = counts.get(self.master_type, 0) + 1
        return {name: count for name, count in counts.items() if count}

    @property
    def master_gpus(self) -> int | None:
        """Return the GPUs of the master; None if neither the catalog nor the user names them."""
        if self.master_type == self.instance_type:
            return self.gpus
        return self.master_instance_type_info.gpus if self.master_instance_type_info else None

    @property
    def gpus(self) -> int | None:
        """Return the GPUs of a node; None if neither the catalog nor the user names it."""
        return self.gpu_count if self.instance_type_info is None else self.instance_type_info.gpus

    @property
    def needed_workers(self) -> int:
        """Return the number of workers without which the deploy fails."""
        return self.worker_count if self.min_workers is None else self.min_workers

    @property
    def fleet_sizes(self) -> ClusterSizes:
        """Return the sizes of both Auto Scaling groups when every node is up."""
        return declared_sizes(worker_count=self.worker_count, needed_workers=self.needed_workers)

    def _check_gpu_count(self) -> None:
        count, known = self.gpu_count, self.instance_type_info
        if count is None:
            return
        require(0 <= count <= _MAX_GPUS, "gpu_count", count, f"0 to {_MAX_GPUS}")
        if known is not None:
            require(count == known.gpus, "gpu_count", count, f"{known.gpus} or left out for {known.name}")


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
            hint = _nearest_type_hint(name)
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


def declared_sizes(*, worker_count: int, needed_workers: int) -> ClusterSizes:
    """Return the sizes that the settings declare.

    MinSize is the number of nodes that a deploy requires: CloudFormation fails the deploy if fewer start.
    """
    return {
        contract.MASTER: GroupSize(min_size=1, desired_capacity=1, max_size=1),
        contract.WORKER: GroupSize(min_size=needed_workers, desired_capacity=worker_count, max_size=worker_count),
    }


def _nearest_type_hint(name: str) -> str:
    """Return ", did you mean TYPE?" for a misspelled type, or nothing."""
    near = instance_types.nearest(name) if len(name) <= _MAX_TYPE_LENGTH else None
    return f", did you mean {near}?" if near else ""
