"""List the settings that cannot change in a running cluster, with the reason for each."""

from typing import Final

from constructs import Construct

from bootstrap.contract import NO_ZONE, ZONE_GUARD
from stacks.immutable_setting import ImmutableSetting
from stacks.settings.props import ClusterProps

UNPINNED_ZONE: Final = "unpinned"
"""Value of the stack's zone parameter if CloudFormation chooses the zone."""
_REPLACES: Final = "it would replace the network and every node"
_MOVES: Final = "dlcluster up moves the nodes, while there are none"


def pin_settings(scope: Construct, props: ClusterProps, *, zone: str | None) -> None:
    """Add guards that reject a deploy which changes a setting of the running nodes' network or storage."""
    _pin_network(scope, props)
    ImmutableSetting(
        scope,
        ZONE_GUARD,
        name="availability_zone",
        value=(zone or UNPINNED_ZONE) if props.is_placed else NO_ZONE,
        why=_MOVES if props.zones else _REPLACES,
    )
    ImmutableSetting(
        scope,
        "Bucket",
        name="bucket",
        value=props.bucket or "one of its own",
        why="running nodes would lose their rights to the old one",
    )
    ImmutableSetting(
        scope,
        "SharedStorageSetting",
        name="shared_storage",
        value=props.shared_storage,
        why="running nodes keep what they have mounted",
    )
    if props.makes_file_system:
        why = "a new file system, without the data, would take the place of the old"
        ImmutableSetting(scope, "FileSystemKey", name="kms_key", value=props.kms_key or "AWS's own", why=why)
    prefix, why = props.role_name_prefix or "none", "running nodes would lose their roles"
    ImmutableSetting(scope, "RoleNamePrefix", name="role_name_prefix", value=prefix, why=why)


def _pin_network(scope: Construct, props: ClusterProps) -> None:
    # Use one parameter for all, so that a cluster can neither move into or out of an existing VPC, nor divide its own
    # differently.
    name, value = ("vpc_id", vpc) if (vpc := props.vpc_id) else ("vpc_cidr", props.vpc_cidr)
    if props.zones:
        name, value = "zones", f"{','.join(props.candidate_zones)} in {value}"
    ImmutableSetting(scope, "VpcCidr", name=name, value=value, why=_REPLACES)
    for construct_id, name, subnet in (
        ("Subnet", "subnet_id", props.subnet_id),
        ("MasterSubnet", "master_subnet_id", props.master_subnet),
    ):
        if subnet is not None:
            reason = "running nodes reject addresses outside the original subnet"
            ImmutableSetting(scope, construct_id, name=name, value=subnet, why=reason)
    private, why = str(props.private).lower(), "running nodes keep their subnets and addresses"
    ImmutableSetting(scope, "Private", name="private", value=private, why=why)
