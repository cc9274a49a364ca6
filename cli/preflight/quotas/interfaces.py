"""Check that the account's quota leaves room for the nodes' network interfaces, of which one with EFA has up to 33."""

from collections.abc import Iterator
from typing import Final

from cli.preflight.finding import Finding, ok, problem
from cli.preflight.quotas import service_quotas
from cli.preflight.quotas.volumes import own_instances
from cli.preflight.target import PreflightTarget, is_deployed
from stacks.catalog.gpu_types import InstanceType
from stacks.settings.props import ClusterProps

SUBJECT: Final = "interface quota"


def check_interface_quota(target: PreflightTarget) -> Iterator[Finding]:
    """Compare the cluster's interfaces with what the quota leaves beside others; its nodes' own count as needed."""
    cluster_instances = own_instances(target)
    pages = target.clients.ec2.get_paginator("describe_network_interfaces").paginate()
    attached = (
        interface.get("Attachment", {}).get("InstanceId") for page in pages for interface in page["NetworkInterfaces"]
    )
    used = sum(instance not in cluster_instances for instance in attached)
    needed = of_nodes(target.props) + (0 if is_deployed(target) else _of_network(target.props))
    quota = service_quotas.INTERFACES
    allowed = service_quotas.quota_floor(target, quota)
    sentence = f"the cluster needs {needed}; {quota.name}: {allowed}, {used} in use"
    if used + needed > allowed:
        fix = service_quotas.increase_advice(quota, wanted=used + needed, region=target.region)
        yield problem(SUBJECT, sentence, fix)
    else:
        yield ok(SUBJECT, sentence)


def of_nodes(props: ClusterProps) -> int:
    """Return the number of the nodes' interfaces."""
    master = _of_node(props.master_instance_type_info, props.master_efa_interfaces)
    return master + props.worker_count * _of_node(props.instance_type_info, props.efa_interfaces)


def _of_node(instance: InstanceType | None, efa_interfaces: int) -> int:
    """Return the number of a node's interfaces: one for each EFA, and one for addresses beside several of these."""
    if instance is None or not efa_interfaces:
        return 1
    return efa_interfaces + (instance.network_cards > 1)


def _of_network(props: ClusterProps) -> int:
    """Return the number of the interfaces of the NAT gateway and of the shared storage."""
    return (props.vpc_id is None) + props.creates_mount_target
