"""Check that the nodes can mount a file system that exists."""

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network
from typing import Any, Final

from botocore.exceptions import ClientError

from cli.preflight.finding import Finding, ok, problem
from cli.preflight.target import PreflightTarget, is_deployed
from stacks.settings.storage import EFS, EFS_PRICE, NO_SHARED_STORAGE

SUBJECT: Final = "shared storage"
NFS_PORTS: Final = (2049,)
LUSTRE_PORTS: Final = (988, 1018, 1019, 1020, 1021, 1022, 1023)
_NOT_FOUND: Final = ("FileSystemNotFound", "BadRequest")


def shared_storage(target: PreflightTarget) -> Iterator[Finding]:
    """Check the file system that the setting names: its state, its network and its security groups."""
    setting = target.props.shared_storage
    kind, _, file_system = setting.partition(":")
    if setting == NO_SHARED_STORAGE:
        yield ok(SUBJECT, "none")
    elif setting == EFS:
        yield ok(SUBJECT, f"the cluster makes its own, which cdk destroy keeps: {EFS_PRICE}")
    else:
        check = _efs if kind == EFS else _lustre
        try:
            found = [*check(target, file_system)]
        except ClientError as error:
            if error.response["Error"]["Code"] not in _NOT_FOUND:
                raise
            found = [problem(SUBJECT, f"no file system {file_system} in {target.region}", f"choose another, or {EFS}")]
        yield from found or [ok(SUBJECT, f"the nodes can mount {file_system}")]


def _efs(target: PreflightTarget, file_system: str) -> Iterator[Finding]:
    efs = target.clients.efs
    [found] = efs.describe_file_systems(FileSystemId=file_system)["FileSystems"]
    if found["LifeCycleState"] != "available":
        yield problem(SUBJECT, f"{file_system} is {found['LifeCycleState']}", "wait until it is available")
        return
    targets = efs.describe_mount_targets(FileSystemId=file_system)["MountTargets"]
    if target.props.vpc_id is None:
        yield from _free_for_a_mount_target(target, file_system, targets)
        return
    zone, cidrs = _subnets(target)
    here = [each for each in targets if each["AvailabilityZoneName"] == zone]
    if not here:
        create = f"aws efs create-mount-target --region {target.region} --file-system-id {file_system}"
        fix = f"{create} --subnet-id {target.props.subnet_id} --security-groups GROUP"
        lets = f"GROUP lets port {NFS_PORTS[0]} in from {' and '.join(cidrs)}"
        yield problem(SUBJECT, f"{file_system} has no mount target in {zone}", f"{fix}, where {lets}")
        return
    if here[0]["VpcId"] != target.props.vpc_id:
        sentence = f"the mount targets of {file_system} are in {here[0]['VpcId']}, not in {target.props.vpc_id}"
        yield problem(SUBJECT, sentence, "choose a file system of the same VPC")
        return
    groups = efs.describe_mount_target_security_groups(MountTargetId=here[0]["MountTargetId"])["SecurityGroups"]
    yield from _closed_ports(target, file_system, groups, NFS_PORTS, cidrs)


def _free_for_a_mount_target(target: PreflightTarget, file_system: str, targets: list[Any]) -> Iterator[Finding]:
    """Find mount targets elsewhere: EFS allows those of one VPC only, and the cluster makes a VPC of its own."""
    if targets and not is_deployed(target):
        where = ", ".join(sorted({each["VpcId"] for each in targets}))
        sentence = f"{file_system} has mount targets in {where}: the cluster cannot add one in a VPC of its own"
        yield problem(SUBJECT, sentence, "put the cluster there (vpc_id and subnet_id), or delete the mount targets")


def _lustre(target: PreflightTarget, file_system: str) -> Iterator[Finding]:
    [found] = target.clients.fsx.describe_file_systems(FileSystemIds=[file_system])["FileSystems"]
    if found["FileSystemType"] != "LUSTRE":
        yield problem(SUBJECT, f"{file_system} is of type {found['FileSystemType']}", "choose one of type LUSTRE")
    elif (state := found.get("Lifecycle", "AVAILABLE")) != "AVAILABLE":
        yield problem(SUBJECT, f"{file_system} is {state}", "wait until it is AVAILABLE")
    elif found.get("VpcId", target.props.vpc_id) != target.props.vpc_id:
        sentence = f"{file_system} is in {found['VpcId']}, not in {target.props.vpc_id}"
        yield problem(SUBJECT, sentence, "choose a file system of the same VPC")
    else:
        interfaces = target.clients.ec2.describe_network_interfaces(
            NetworkInterfaceIds=found.get("NetworkInterfaceIds", [])[:1]
        )["NetworkInterfaces"]
        groups = [group.get("GroupId", "") for each in interfaces for group in each.get("Groups", [])]
        yield from _closed_ports(target, file_system, groups, LUSTRE_PORTS, _subnets(target)[1])


def _subnets(target: PreflightTarget) -> tuple[str, list[str]]:
    """Return the zone of the nodes and the address blocks of their subnets."""
    wanted = [name for name in (target.props.subnet_id, target.props.master_subnet) if name is not None]
    found = target.clients.ec2.describe_subnets(SubnetIds=[*dict.fromkeys(wanted)])["Subnets"]
    return found[0]["AvailabilityZone"], sorted({subnet["CidrBlock"] for subnet in found})


def _closed_ports(
    target: PreflightTarget, file_system: str, groups: list[str], ports: tuple[int, ...], cidrs: list[str]
) -> Iterator[Finding]:
    """Find nodes' blocks that no group of the file system lets in; rules that name other groups let no new node in."""
    found = target.clients.ec2.describe_security_groups(GroupIds=groups)["SecurityGroups"] if groups else []
    rules: list[Any] = [rule for group in found for rule in group["IpPermissions"]]
    closed = [cidr for cidr in cidrs if not all(any(_lets_in(rule, port, cidr) for rule in rules) for port in ports)]
    if closed:
        span = f"{ports[0]}" if len(ports) == 1 else f"{ports[0]} and {ports[1]} to {ports[-1]}"
        sentence = f"no security group of {file_system} lets port {span} in from {' and '.join(closed)}"
        authorize = f"aws ec2 authorize-security-group-ingress --region {target.region} --group-id {groups[0]}"
        yield problem(SUBJECT, sentence, f"{authorize} --protocol tcp --port {ports[0]} --cidr {closed[0]}")


def _lets_in(rule: Mapping[str, Any], port: int, cidr: str) -> bool:
    protocol = rule["IpProtocol"]
    has_port = protocol == "-1" or (protocol == "tcp" and rule["FromPort"] <= port <= rule["ToPort"])
    return has_port and any(
        IPv4Network(cidr).subnet_of(IPv4Network(each["CidrIp"], strict=False)) for each in rule.get("IpRanges", [])
    )
