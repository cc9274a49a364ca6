"""Check that the nodes can mount an existing EFS file system: its state, zone, policy, mount targets and groups."""

import json
from collections.abc import Iterator
from typing import Any, Final

from botocore.exceptions import ClientError

from cli.preflight.finding import Finding, problem, warning
from cli.preflight.nodes.offering import deploy_zone
from cli.preflight.resource_policy import Caller, allows, denying
from cli.preflight.storage.ports import SUBJECT, closed_ports, node_subnets
from cli.preflight.target import PreflightTarget, is_deployed

NFS: Final = ((2049, 2049),)
"""Range of ports that the nodes use."""
MOUNT: Final = "elasticfilesystem:ClientMount"
WRITE: Final = "elasticfilesystem:ClientWrite"
NODE: Final = Caller(arn=None, keys={"aws:securetransport": "true", "elasticfilesystem:accessedviamounttarget": "true"})
"""A node mounts with TLS, and names neither a role (decision 059) nor an access point. EFS's only other condition key
for NFS clients is a public address ("Using IAM to control access to file systems", Amazon EFS User Guide)."""


def efs(target: PreflightTarget, file_system: str) -> Iterator[Finding]:
    """Find what prevents the nodes from mounting the file system."""
    client = target.clients.efs
    [found] = client.describe_file_systems(FileSystemId=file_system)["FileSystems"]
    if found["LifeCycleState"] != "available":
        yield problem(SUBJECT, f"{file_system} is {found['LifeCycleState']}", "wait until it is available")
        return
    yield from _policy(target, file_system)
    targets = client.describe_mount_targets(FileSystemId=file_system)["MountTargets"]
    if target.props.vpc_id is None:
        yield from _other_zone(found, deploy_zone(target), "-c availability_zone={zone}")
        yield from _free_for_a_mount_target(target, file_system, targets)
        return
    zone, cidrs = node_subnets(target)
    if other := [*_other_zone(found, zone, "choose a subnet_id in {zone}")]:
        yield from other
        return
    yield from _mount_target(target, file_system, targets, zone=zone, cidrs=cidrs)


def _other_zone(found: Any, zone: str | None, choice: str) -> Iterator[Finding]:
    """Find One Zone storage in another zone: it accepts a mount target only in its own zone."""
    storage_zone = found.get("AvailabilityZoneName")
    if storage_zone and storage_zone != zone:
        sentence = f"{found['FileSystemId']} is One Zone storage in {storage_zone}, and the cluster's zone is {zone}"
        yield problem(SUBJECT, sentence, f"{choice.format(zone=storage_zone)}, or choose a Regional file system")


def _mount_target(
    target: PreflightTarget, file_system: str, targets: list[Any], *, zone: str, cidrs: list[str]
) -> Iterator[Finding]:
    """Find what the mount target in the nodes' zone lacks; in an existing VPC, the deploy creates none."""
    here = [mount_target for mount_target in targets if mount_target["AvailabilityZoneName"] == zone]
    if not here:
        create = f"aws efs create-mount-target --region {target.region} --file-system-id {file_system}"
        fix = f"{create} --subnet-id {target.props.subnet_id} --security-groups GROUP"
        lets = f"GROUP lets port {NFS[0][0]} in from {' and '.join(cidrs)}"
        yield problem(SUBJECT, f"{file_system} has no mount target in {zone}", f"{fix}, where {lets}")
        return
    if here[0]["VpcId"] != target.props.vpc_id:
        sentence = f"the mount targets of {file_system} are in {here[0]['VpcId']}, not in {target.props.vpc_id}"
        yield problem(SUBJECT, sentence, "choose a file system of the same VPC")
        return
    mount_target = here[0]["MountTargetId"]
    groups = target.clients.efs.describe_mount_target_security_groups(MountTargetId=mount_target)["SecurityGroups"]
    yield from closed_ports(target, file_system, groups, NFS, cidrs)


def _free_for_a_mount_target(target: PreflightTarget, file_system: str, targets: list[Any]) -> Iterator[Finding]:
    """Find mount targets elsewhere: EFS allows them in one VPC only, and the cluster creates its own VPC."""
    if targets and not is_deployed(target):
        where = ", ".join(sorted({mount_target["VpcId"] for mount_target in targets}))
        sentence = f"{file_system} has mount targets in {where}: the cluster cannot add one in a VPC of its own"
        yield problem(SUBJECT, sentence, "put the cluster there (vpc_id and subnet_id), or delete the mount targets")


def _policy(target: PreflightTarget, file_system: str) -> Iterator[Finding]:
    """Find what the file system's policy denies the nodes; without a policy, EFS admits every client."""
    try:
        text = target.clients.efs.describe_file_system_policy(FileSystemId=file_system)["Policy"]
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code != "PolicyNotFound":
            sentence = f"could not read the policy of {file_system} ({code}), which may refuse every mount"
            yield warning(SUBJECT, sentence, "allow yourself elasticfilesystem:DescribeFileSystemPolicy")
        return
    policy = json.loads(text)
    if not allows(policy, MOUNT, NODE):
        refusal = " and ".join(denying(policy, MOUNT, NODE)) or f"it does not allow everybody {MOUNT}"
        sentence = f"the policy of {file_system} refuses mounts without IAM, as the nodes make them ({refusal})"
        statement = f'allow Principal "*" {MOUNT} and {WRITE} where elasticfilesystem:AccessedViaMountTarget is true'
        delete = f"aws efs delete-file-system-policy --region {target.region} --file-system-id {file_system}"
        remove = f"remove {refusal}, and " if denying(policy, MOUNT, NODE) else ""
        yield problem(SUBJECT, sentence, f"{remove}{statement}, or {delete}: its security groups keep others out")
    elif not allows(policy, WRITE, NODE):
        sentence = f"the policy of {file_system} lets the nodes read only"
        yield warning(SUBJECT, sentence, f'allow Principal "*" {WRITE} if jobs write there')
