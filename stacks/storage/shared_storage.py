"""Define the file system that all nodes share, with its mount targets and the group that admits the nodes.

The nodes do not refer to it, so that they neither wait for it nor fail with it: the master's agent queries
CloudFormation for its ID (bootstrap/shared_storage/lookup.py).
"""

from collections.abc import Sequence
from typing import Any, Final

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from constructs import Construct

from bootstrap import contract
from stacks.network.security_groups import SecurityGroups

NFS_PORT: Final = 2049
_CLIENT_ACTIONS: Final = ("ClientMount", "ClientWrite", "ClientRootAccess")


class SharedStorage(Construct):
    """A mount target in each of the cluster's zones, for an existing file system or for one created here.

    Uses L1 constructs, because the L2 file system creates no mount target for an existing one.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        cluster_name: str,
        file_system_id: str | None,
        kms_key: str | None,
        vpc: ec2.IVpc,
        subnets: Sequence[ec2.ISubnet],
        nodes: SecurityGroups,
        limits_egress: bool,
    ) -> None:
        super().__init__(scope, construct_id)
        self._cluster_name = cluster_name
        self.file_system = None if file_system_id else self._file_system(kms_key)
        """The file system created here, or None."""
        self.file_system_id = self.file_system.ref if self.file_system else str(file_system_id)
        group = self._create_group(vpc, nodes, limits_egress=limits_egress)
        # EFS accepts one per zone, at no cost, so nodes that move to another zone find theirs there.
        for subnet in subnets:
            efs.CfnMountTarget(
                self,
                "MountTarget" if len(subnets) == 1 else f"MountTarget-{subnet.availability_zone}",
                file_system_id=self.file_system_id,
                subnet_id=subnet.subnet_id,
                security_groups=[group.security_group_id],
            )

    @property
    def resource(self) -> str | None:
        """Return the logical ID of the file system created here, as text: a reference would make the nodes wait."""
        return None if self.file_system is None else cdk.Stack.of(self).get_logical_id(self.file_system)

    def _file_system(self, kms_key: str | None) -> efs.CfnFileSystem:
        """Create an encrypted file system that survives the cluster; an empty one costs nothing."""
        file_system = efs.CfnFileSystem(
            self,
            "FileSystem",
            encrypted=True,
            kms_key_id=kms_key,
            performance_mode="generalPurpose",
            # With "bursting", a file system of 10 GiB would be limited to half a MiB a second.
            throughput_mode="elastic",
            file_system_policy=_encrypted_transport_only(),
        )
        cdk.Tags.of(file_system).add("Name", self._cluster_name)
        # `dlcluster delete-storage` deletes only file systems with this tag.
        cdk.Tags.of(file_system).add(contract.CLUSTER_TAG, self._cluster_name)
        # Rolling a creation back deletes it: nobody has written to it, and the next attempt creates another.
        file_system.apply_removal_policy(cdk.RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)
        return file_system

    def _create_group(self, vpc: ec2.IVpc, nodes: SecurityGroups, *, limits_egress: bool) -> ec2.SecurityGroup:
        """Admit NFS from the nodes' groups, and nothing else; let nodes out to it that may not connect to anywhere."""
        group = ec2.SecurityGroup(
            self, "Access", vpc=vpc, description="NFS from the nodes of the cluster", allow_all_outbound=False
        )
        cdk.Tags.of(group).add("Name", f"{self._cluster_name}-shared-storage")
        for name, peer in ((contract.MASTER, nodes.master), (contract.WORKER, nodes.worker)):
            group.add_ingress_rule(peer, ec2.Port.tcp(NFS_PORT), f"NFS from {name}")
            if limits_egress:
                peer.add_egress_rule(group, ec2.Port.tcp(NFS_PORT), f"NFS from {name}")
        return group


def _encrypted_transport_only() -> dict[str, Any]:
    """Return the policy that refuses a mount without TLS ("Creating file system policies", Amazon EFS User Guide).

    The security group decides who may mount: the policy names no principal.
    """
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"AWS": "*"},
                "Action": [f"elasticfilesystem:{action}" for action in _CLIENT_ACTIONS],
                "Condition": {"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}},
            },
            {
                "Effect": "Deny",
                "Principal": {"AWS": "*"},
                "Action": "*",
                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
            },
        ],
    }
