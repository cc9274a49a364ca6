"""Combine the settings of all concerns into one flat ``ClusterProps``.

The values are in the ``"cluster"`` object of cdk.json, and ``-c name=value`` overrides each. To add a setting, add a
field to the file of its concern, with its default, its check and its warning. Only a check that combines several
concerns belongs in this file.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bootstrap.aws.group_sizes import PAUSED, ClusterSizes
from bootstrap.contract import NODE_TYPES
from bootstrap.team_keys.keys import TAG_LENGTH, to_tags
from stacks.settings.base import SettingsError
from stacks.settings.efa import EfaSettings
from stacks.settings.lifetime import LifetimeSettings
from stacks.settings.naming import NamingSettings
from stacks.settings.network import NetworkSettings
from stacks.settings.nodes import CapacitySettings, ImageSettings
from stacks.settings.parsing import parse, settings_in
from stacks.settings.purchase import PurchaseSettings
from stacks.settings.security import AccessSettings, SecretsSettings, SecuritySettings, hardened_defaults
from stacks.settings.software import FrameworkSettings, SetupSettings
from stacks.settings.storage import DataSettings

_MAX_TAGS_OF_A_GROUP: Final = 44
"""Number of tags that the user and ``ssh_keys`` may add: AWS allows 50, and the product adds 6.

These are Name, cluster, node type, expires, idle-stop and block-pauses on the master's group. The workers' group has
the first three, and the attempt of ``dlcluster up``.
"""


# Do not use slots: Python cannot combine several bases that have them.
@dataclass(frozen=True, kw_only=True)
class ClusterProps(
    LifetimeSettings,
    SetupSettings,
    SecretsSettings,
    SecuritySettings,
    DataSettings,
    FrameworkSettings,
    NetworkSettings,
    PurchaseSettings,
    EfaSettings,
    ImageSettings,
    AccessSettings,
    CapacitySettings,
    NamingSettings,
):
    """The settings of one cluster, as flat attributes.

    Settings are flat in cdk.json and in the constructor, like the props of any CDK construct. Each concern is therefore
    a base class, not an attribute. A concern that needs the settings of another extends its class and checks after it.
    The order of the bases matters in two ways only. Fields are ordered from the last base to the first. If several
    settings are wrong, the order determines which error is reported.
    """

    def __post_init__(self) -> None:
        """Check every setting; see ``Settings.check``."""
        self.check()
        if self.zones and self.capacity_reservation is not None:
            raise SettingsError(
                f"zones must not be set with purchase={self.purchase}: set availability_zone to its zone"
            )
        if (count := len(self.tags) + len(to_tags(self.team_keys))) > _MAX_TAGS_OF_A_GROUP:
            raise SettingsError(
                f"tags and ssh_keys must take at most {_MAX_TAGS_OF_A_GROUP} tags of the master's group, got {count}: "
                f"each tag takes one, and {TAG_LENGTH} characters of keys take one"
            )

    @classmethod
    def from_context(cls, context: Mapping[str, Any]) -> "ClusterProps":
        """Read the settings from the CDK's context."""
        settings = settings_in(context, SETTINGS)
        fields = {field.name: field for field in dataclasses.fields(cls)}
        parsed = {name: parse(fields[name], value) for name, value in settings.items()}
        return cls(**{**(hardened_defaults(parsed) if parsed.get("hardened") else {}), **parsed})

    @property
    def initial_sizes(self) -> ClusterSizes:
        """Return the sizes that a deploy gives both groups: zero while no zone is chosen, or in a Capacity Block.

        A later start, by ``dlcluster up`` or a Capacity Block's schedules, gives them ``fleet_sizes``.
        """
        starts_nodes = self.has_zone and not self.uses_capacity_block
        return self.fleet_sizes if starts_nodes else dict.fromkeys(NODE_TYPES, PAUSED)


SETTINGS: Final = tuple(field.name for field in dataclasses.fields(ClusterProps))
"""Names of all settings."""
