"""Define the settings for the network between the nodes: the Elastic Fabric Adapter and the placement group."""

from dataclasses import dataclass
from typing import Final

from stacks.settings.base import SettingsError, require
from stacks.settings.nodes import CapacitySettings, ImageSettings
from stacks.settings.security import AccessSettings

AUTO: Final = "auto"
OFF: Final = "off"


@dataclass(frozen=True, kw_only=True)
class EfaSettings(ImageSettings, AccessSettings, CapacitySettings):
    """The network between the nodes."""

    efa: str = AUTO
    """Elastic Fabric Adapter: ``auto`` uses it on every network card of an instance type that has it, ``off`` never.
    A change applies to nodes launched after the deploy."""
    placement_group: str = AUTO
    """``auto`` asks EC2 to place nodes with EFA close together, which can make capacity harder to get; ``off`` does
    not. A change applies to nodes launched after the deploy."""

    def check(self) -> None:
        """Check that ``efa`` and ``placement_group`` are known values, and that both node types can use one network."""
        super().check()
        for name in ("efa", "placement_group"):
            require(getattr(self, name) in (AUTO, OFF), name, getattr(self, name), f"{AUTO} or {OFF}")
        if self.effective_master_trains and bool(self.master_efa_interfaces) != bool(self.efa_interfaces):
            raise SettingsError(
                f"master_trains with efa needs EFA on both types or on none, as NCCL uses one network: "
                f"{self.instance_type} has {self.efa_interfaces} adapters, {self.master_type} "
                f"{self.master_efa_interfaces}; set efa=off or leave master_trains out"
            )

    def warnings(self) -> dict[str, str]:
        """Warn of an image that may lack the driver of EFA."""
        warnings = super().warnings()
        if self.efa_interfaces and self.ami is not None:
            warnings["efa-image"] = (
                f"efa is on for {self.instance_type}: the image in ami needs the driver of EFA, or its nodes never "
                "become ready; efa=off does without"
            )
        return warnings

    @property
    def efa_interfaces(self) -> int:
        """Return the EFA interfaces of each worker; 0 if EFA is off or the type has none."""
        return self.instance_type_info.efa_interfaces if self.instance_type_info and self.efa == AUTO else 0

    @property
    def master_efa_interfaces(self) -> int:
        """Return the EFA interfaces of the master; one that does not train has none."""
        known = self.master_instance_type_info
        return known.efa_interfaces if known and self.effective_master_trains and self.efa == AUTO else 0

    @property
    def unreachable_master_reason(self) -> str | None:
        """Return why the master is unreachable, or None; AWS gives no public address to several interfaces."""
        if self.master_efa_interfaces < 2 or self.private:
            return None
        cards = f"the master's type {self.master_type} has {self.master_efa_interfaces} interfaces with EFA"
        fix = "set private=true, efa=off or a master_instance_type such as m7i.xlarge"
        return f"{cards}, and AWS gives such a node no public address: {fix}"

    @property
    def uses_placement_group(self) -> bool:
        """Return True if the nodes are in a cluster placement group."""
        return self.efa_interfaces > 0 and self.placement_group == AUTO
