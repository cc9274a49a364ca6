"""Check that in this region the type has as many Elastic Fabric Adapters as the nodes request."""

from collections.abc import Iterator
from typing import Final

from cli.preflight.finding import Finding, ok, problem
from cli.preflight.target import PreflightTarget

SUBJECT: Final = "EFA"


def check_efa(target: PreflightTarget) -> Iterator[Finding]:
    """Compare the nodes' EFA interfaces with EC2's own figure; a node with too many never launches."""
    wanted, name = target.props.efa_interfaces, target.props.instance_type
    if not wanted:
        return
    if target.props.unreachable_master_reason is not None:
        sentence, fix = target.props.unreachable_master_reason.rsplit(": ", 1)
        yield problem(SUBJECT, sentence, fix)
        return
    # Use a filter: naming a type that the region lacks would be an error. The client's list of types is older than
    # EC2's.
    pages = target.clients.ec2.get_paginator("describe_instance_types").paginate(
        Filters=[{"Name": "instance-type", "Values": [name]}]
    )
    network_infos = [info["NetworkInfo"] for page in pages for info in page["InstanceTypes"]]
    allowed = network_infos[0].get("EfaInfo", {}).get("MaximumEfaInterfaces", 0) if network_infos else 0
    if wanted > allowed:
        sentence = f"each node asks for {wanted} EFA interfaces, {name} has {allowed} in {target.region}"
        yield problem(SUBJECT, sentence, "set efa=off, or refresh the catalog with python -m cli.catalog.refresh")
    else:
        yield ok(SUBJECT, f"{name} has the {wanted} EFA interfaces of each node, and one address")
