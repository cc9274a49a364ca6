"""Complete FSx for Lustre: its file systems have a network interface, a mount name and a life cycle, as on AWS.

AWS: "CreateFileSystem" and "FileSystem" in the Amazon FSx API Reference; "Cannot create a file system because of
misconfigured security group" in the FSx for Lustre User Guide. Other types of file systems stay as in moto.
"""

import time
from collections.abc import Collection, Sequence
from datetime import datetime, timezone
from ipaddress import ip_network
from typing import Any, Final
from uuid import uuid4

from moto.core.exceptions import JsonRESTError
from moto.ec2.models import EC2Backend, ec2_backends
from moto.ec2.models.security_groups import SecurityGroup, SecurityGroupRule
from moto.ec2.models.subnets import Subnet
from moto.fsx.exceptions import FileSystemNotFound
from moto.fsx.models import FileSystem, FSxBackend

from local.control_plane.moto_patching import wrap

TYPE: Final = "LUSTRE"
LNET_PORT: Final = 988
CREATING_S: Final = 2.0
"""Seconds that a new file system is in the state CREATING; on AWS, minutes."""
_OLDEST: Final = "SCRATCH_1"
"""Deployment type by default, whose file systems all have the same mount name."""


def install() -> None:
    """Patch moto: complete file systems of Lustre."""
    wrap(FSxBackend, "create_file_system", _create)
    wrap(FSxBackend, "describe_file_systems", _describe)
    wrap(FSxBackend, "delete_file_system", _delete)
    wrap(FileSystem, "to_dict", _to_dict)


def _create(original: Any, backend: FSxBackend, **kwargs: Any) -> Any:
    if kwargs["file_system_type"] != TYPE:
        return original(backend, **kwargs)
    ec2: EC2Backend = ec2_backends[backend.account_id][backend.region_name]
    subnet = _subnet(ec2, kwargs["subnet_ids"] or ())
    groups = _groups(ec2, subnet, kwargs["security_group_ids"] or ())
    owner: Any = backend
    interface = ec2.create_network_interface(
        subnet, [subnet.get_available_subnet_ip(owner)], group_ids=[group.id for group in groups], description="AWS FSx"
    )
    file_system: Any = original(backend, **kwargs)
    configuration = kwargs["lustre_configuration"] or {}
    kind = configuration.get("DeploymentType", _OLDEST)
    mount_name = "fsx" if kind == _OLDEST else uuid4().hex[:8]
    file_system.lustre_configuration = {**configuration, "DeploymentType": kind, "MountName": mount_name}
    file_system.interface = interface
    file_system.created_at, file_system.available_after = datetime.now(timezone.utc), time.monotonic() + CREATING_S
    return file_system


def _describe(original: Any, backend: FSxBackend, **kwargs: Any) -> Any:
    """Refuse IDs that do not exist; moto leaves them out of its answer."""
    for file_system_id in kwargs["file_system_ids"] or ():
        if file_system_id not in backend.file_systems:
            raise FileSystemNotFound(file_system_id)
    return original(backend, **kwargs)


def _delete(original: Any, backend: FSxBackend, **kwargs: Any) -> Any:
    file_system: Any = backend.file_systems.get(kwargs["file_system_id"])
    answer = original(backend, **kwargs)
    if interface := getattr(file_system, "interface", None):
        interface.ec2_backend.delete_network_interface(interface.id)
        interface.subnet.del_subnet_ip(interface.private_ip_address)
    return answer


def _to_dict(original: Any, file_system: Any) -> dict[str, Any]:
    described: dict[str, Any] = original(file_system)
    if file_system.file_system_type != TYPE:
        return described
    # FSx names the groups of the interface, not the file system's.
    described.pop("SecurityGroupIds", None)
    return described | {
        "OwnerId": file_system.backend.account_id,
        "CreationTime": file_system.created_at.timestamp(),
        "Lifecycle": "CREATING" if time.monotonic() < file_system.available_after else "AVAILABLE",
        "VpcId": file_system.interface.subnet.vpc_id,
        "NetworkInterfaceIds": [file_system.interface.id],
    }


def _subnet(ec2: EC2Backend, subnet_ids: Sequence[str]) -> Subnet:
    """Return the only subnet that a file system of Lustre may have."""
    if len(subnet_ids) != 1:
        raise JsonRESTError("BadRequest", f"exactly one subnet must be provided, got {len(subnet_ids)}")
    subnets = [zone[subnet_ids[0]] for zone in ec2.subnets.values() if subnet_ids[0] in zone]
    if not subnets:
        raise JsonRESTError("InvalidNetworkSettings", f"The subnet ID '{subnet_ids[0]}' does not exist")
    return subnets[0]


def _groups(ec2: EC2Backend, subnet: Subnet, group_ids: Collection[str]) -> list[SecurityGroup]:
    """Return the interface's security groups, by default the VPC's default one.

    Raises JsonRESTError unless they let the file system's servers reach each other.
    """
    vpc_groups = list(ec2.groups[subnet.vpc_id].values())
    groups = [g for g in vpc_groups if (g.id in group_ids if group_ids else g.name == "default")]
    if missing := set(group_ids) - {group.id for group in groups}:
        raise JsonRESTError("InvalidNetworkSettings", f"The security group '{min(missing)}' does not exist in the VPC")
    file_system_groups = {group.id for group in groups}
    if not any(_admits_servers(rule, file_system_groups, subnet) for group in groups for rule in group.ingress_rules):
        raise JsonRESTError(
            "InvalidNetworkSettings",
            "The file system cannot be created because the default security group in the subnet provided or the "
            f"provided security groups do not permit Lustre LNET network traffic on port {LNET_PORT}",
        )
    return groups


def _admits_servers(rule: SecurityGroupRule, group_ids: Collection[str], subnet: Subnet) -> bool:
    """Return True if the rule opens LNet's port to the groups themselves or to the whole subnet."""
    in_range = rule.ip_protocol == "tcp" and (rule.from_port or 0) <= LNET_PORT <= (rule.to_port or 0)
    if rule.ip_protocol != "-1" and not in_range:
        return False
    if rule.source_group.get("GroupId") in group_ids:
        return True
    return bool(rule.cidr_ipv4) and ip_network(subnet.cidr_block).subnet_of(ip_network(str(rule.cidr_ipv4)))  # type: ignore[arg-type]
