"""Define the security groups, which limit who may connect to a node."""

from collections.abc import Sequence
from itertools import product

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from bootstrap import contract
from stacks.settings.storage import LUSTRE_PORTS


class SecurityGroups(Construct):
    """Groups that allow SSH to the master from named addresses, all traffic between nodes, and Lustre file servers.

    Nodes may connect to the addresses of ``egress``: IPv4 blocks and prefix lists.
    On a private cluster ``ssh_locations`` is None, and no address can be allowed.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        cluster_name: str,
        vpc: ec2.IVpc,
        ssh_locations: Sequence[str] | None,
        egress: Sequence[str],
        uses_efa: bool = False,
    ) -> None:
        super().__init__(scope, construct_id)
        self._cluster_name = cluster_name
        self.admin_ssh = self._create_group("AdminSsh", "admin-ssh", vpc, "SSH to the master from the administrator")
        self.master = self._create_group("Master", contract.MASTER, vpc, "The master of the cluster")
        self.worker = self._create_group("Worker", contract.WORKER, vpc, "The workers of the cluster")
        for cidr in ssh_locations or ():
            self.admin_ssh.add_ingress_rule(
                ec2.Peer.ipv4(cidr), ec2.Port.tcp(contract.SSH_PORT), "SSH from ssh_location"
            )
        if ssh_locations:
            cdk.Validations.of(self.admin_ssh).acknowledge(
                cdk.Acknowledgment(
                    id="CloudFormation-Validate::W2508",
                    reason="0.0.0.0/0 is allowed only if the user sets it explicitly, and synth warns about it",
                )
            )
        self.allow_list = None if ssh_locations is None else self._add_allow_list()
        """Addresses of ``dlcluster allow-ip``; None on a private cluster."""
        # Create the group even if EFA is off: running nodes may still use it.
        self.efa_group = self._create_efa_group(vpc)
        """Group of all nodes that use the Elastic Fabric Adapter."""
        self._uses_efa = uses_efa
        self._allow_members()
        self._allow_outbound(egress)

    def allow_lustre_servers(self, cidrs: Sequence[str]) -> None:
        """Allow the servers of a Lustre file system to connect to its clients from these CIDR blocks."""
        for group, cidr, (first, last) in product((self.master, self.worker), cidrs, LUSTRE_PORTS):
            group.add_ingress_rule(ec2.Peer.ipv4(cidr), ec2.Port.tcp_range(first, last), "Lustre file servers")

    def groups_for(self, node_type: contract.NodeType) -> list[ec2.ISecurityGroup]:
        """Return the groups of a type's nodes."""
        groups = [self.master, self.admin_ssh] if node_type == contract.MASTER else [self.worker]
        return [*groups, self.efa_group] if self._uses_efa else [*groups]

    def _create_group(self, construct_id: str, name: str, vpc: ec2.IVpc, description: str) -> ec2.SecurityGroup:
        group = ec2.SecurityGroup(self, construct_id, vpc=vpc, description=description, allow_all_outbound=False)
        # Use a tag instead of a GroupName, because a changed name would replace the group.
        cdk.Tags.of(group).add("Name", f"{self._cluster_name}-{name}")
        return group

    def _add_allow_list(self) -> ec2.CfnPrefixList:
        """Create the prefix list of ``dlcluster allow-ip``, and allow its addresses to reach the master's SSH port.

        The template names no entries, so CloudFormation has none to restore: a deploy leaves the command's unchanged.
        """
        # Do not use ec2.PrefixList: it writes an empty list of entries, which an update of anything else would apply.
        allow_list = ec2.CfnPrefixList(
            self,
            "AllowList",
            address_family="IPv4",
            prefix_list_name=f"{self._cluster_name}-allowed",
            max_entries=contract.ALLOW_LIST_SIZE,
        )
        addresses = ec2.Peer.prefix_list(allow_list.attr_prefix_list_id)
        self.admin_ssh.add_ingress_rule(addresses, ec2.Port.tcp(contract.SSH_PORT), "SSH from dlcluster allow-ip")
        return allow_list

    def _create_efa_group(self, vpc: ec2.IVpc) -> ec2.SecurityGroup:
        """Return a group that is open to itself by its ID.

        No other rule permits the adapter's traffic ("EFA-enabled security group", Amazon EC2 User Guide).
        """
        group = self._create_group("Efa", "efa", vpc, "Elastic Fabric Adapter between the nodes")
        group.add_ingress_rule(group, ec2.Port.all_traffic(), "EFA between nodes")
        group.add_egress_rule(group, ec2.Port.all_traffic(), "EFA between nodes")
        return group

    def _allow_members(self) -> None:
        members = {contract.MASTER: self.master, contract.WORKER: self.worker}
        for (name, group), (peer_name, peer) in product(members.items(), repeat=2):
            group.add_ingress_rule(peer, ec2.Port.all_traffic(), f"{peer_name} to {name}")
            group.add_egress_rule(peer, ec2.Port.all_traffic(), f"{name} to {peer_name}")

    def _allow_outbound(self, egress: Sequence[str]) -> None:
        """Allow outbound TCP and UDP to these blocks and prefix lists."""
        ports = (ec2.Port.all_tcp(), ec2.Port.all_udp())
        for (name, group), address, port in product(self._groups_by_name(), egress, ports):
            peer = ec2.Peer.prefix_list(address) if address.startswith("pl-") else ec2.Peer.ipv4(address)
            group.add_egress_rule(peer, port, f"{name} to AWS and the internet")

    def _groups_by_name(self) -> Sequence[tuple[contract.NodeType, ec2.SecurityGroup]]:
        return (contract.MASTER, self.master), (contract.WORKER, self.worker)
