"""List what calls to EC2 require: a permission on each named resource, with the tags of instances."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from moto.ec2.models import ec2_backends

from local.control_plane.api_request import ApiRequest
from local.control_plane.authorization.callers import Caller
from local.policy_evaluation.policies import Permission

_INSTANCE: Final = re.compile(r"InstanceId\.\d+")


def _anything(request: ApiRequest, caller: Caller) -> Iterator[Permission]:
    yield caller.permission(request)


def _instances(request: ApiRequest, caller: Caller) -> Iterator[Permission]:
    for name, instance_id in request.parameters.items():
        if _INSTANCE.fullmatch(name):
            yield _on_instance(request, caller, instance_id)


def _address(request: ApiRequest, caller: Caller) -> Iterator[Permission]:
    """Require the action on the address, and on the instance or the network interface that gets or has it."""
    named = request.parameters
    address = _find_address(request, caller)
    allocation_id = named.get("AllocationId") or (address.allocation_id if address else "*")
    yield caller.permission(request, caller.arn(request, f"elastic-ip/{allocation_id}"))
    if "InstanceId" in named:
        yield _on_instance(request, caller, named["InstanceId"])
    if "NetworkInterfaceId" in named:
        yield caller.permission(request, caller.arn(request, f"network-interface/{named['NetworkInterfaceId']}"))


def _find_address(request: ApiRequest, caller: Caller) -> Any:
    """Find the address named directly or by its association."""
    names = (request.parameters.get("PublicIp"), request.parameters.get("AssociationId"))
    for address in ec2_backends[caller.account][request.credential.region].addresses:
        if {address.public_ip, address.association_id} & {name for name in names if name}:
            return address
    return None


def _prefix_list(request: ApiRequest, caller: Caller) -> Iterator[Permission]:
    yield caller.permission(request, caller.arn(request, f"prefix-list/{request.parameters['PrefixListId']}"))


def _on_instance(request: ApiRequest, caller: Caller, instance_id: str) -> Permission:
    tags = ec2_backends[caller.account][request.credential.region].describe_tags(filters={"resource-id": [instance_id]})
    keys = ("aws:ResourceTag/", "ec2:ResourceTag/")
    context = {f"{key}{tag['key']}": (str(tag["value"]),) for key in keys for tag in tags}
    return caller.permission(request, caller.arn(request, f"instance/{instance_id}"), context=context)


CALLS: Final[Mapping[str, Callable[[ApiRequest, Caller], Iterator[Permission]]]] = {
    "AssociateAddress": _address,
    "DescribeAddresses": _anything,
    "DescribeImages": _anything,
    "DescribeInstanceStatus": _anything,
    "DescribeInstanceTypes": _anything,
    "DescribeInstances": _anything,
    "DescribeManagedPrefixLists": _anything,
    "DescribeSecurityGroups": _anything,
    "DescribeSubnets": _anything,
    "DescribeVpcs": _anything,
    "DisassociateAddress": _address,
    "GetManagedPrefixListEntries": _prefix_list,
    "ModifyManagedPrefixList": _prefix_list,
    "RebootInstances": _instances,
    "StartInstances": _instances,
    "StopInstances": _instances,
    "TerminateInstances": _instances,
}
