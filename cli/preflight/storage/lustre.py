"""Check that the nodes can mount an FSx for Lustre file system: state, VPC, and its groups in both directions."""

from collections.abc import Iterator

from cli.preflight.finding import Finding, problem
from cli.preflight.storage.ports import SUBJECT, closed_ports, node_subnets
from cli.preflight.target import PreflightTarget
from stacks.settings.storage import LUSTRE_PORTS


def lustre(target: PreflightTarget, file_system: str) -> Iterator[Finding]:
    """Find what prevents the nodes from mounting the file system."""
    [found] = target.clients.fsx.describe_file_systems(FileSystemIds=[file_system])["FileSystems"]
    if found["FileSystemType"] != "LUSTRE":
        yield problem(SUBJECT, f"{file_system} is of type {found['FileSystemType']}", "choose one of type LUSTRE")
    elif (state := found.get("Lifecycle", "AVAILABLE")) != "AVAILABLE":
        yield problem(SUBJECT, f"{file_system} is {state}", "wait until it is AVAILABLE")
    elif found.get("VpcId", target.props.vpc_id) != target.props.vpc_id:
        sentence = f"{file_system} is in {found['VpcId']}, not in {target.props.vpc_id}"
        yield problem(SUBJECT, sentence, "choose a file system of the same VPC")
    elif interfaces := found.get("NetworkInterfaceIds", []):
        # All of its interfaces have the same groups.
        described = target.clients.ec2.describe_network_interfaces(NetworkInterfaceIds=interfaces[:1])
        groups = [
            group.get("GroupId", "") for interface in described["NetworkInterfaces"] for group in interface["Groups"]
        ]
        # Its servers also connect to the nodes (LNet), which the nodes' own groups allow.
        yield from closed_ports(target, file_system, groups, LUSTRE_PORTS, node_subnets(target)[1], both_ways=True)
