"""List what calls to EC2 require: a permission on each named resource, with the tags of instances."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from moto.ec2.models import ec2_backends

from local.aws.authorization.callers import Caller
from local.aws.calls import ApiRequest
from local.policy_evaluation.policies import Permission

_INSTANCE: Final = re.compile(r"InstanceId\.\d+")


def _anything(call: ApiRequest, caller: Caller) -> Iterator[Permission]:
    yield caller.permission(call)


def _instances(call: ApiRequest, caller: Caller) -> Iterator[Permission]:
    for name, instance_id in call.parameters.items():
        if _INSTANCE.fullmatch(name):
            yield _on_instance(call, caller, instance_id)


def _address(call: ApiRequest, caller: Caller) -> Iterator[Permission]:
    """Require the action on the address, and on the instance or the network interface that gets or has it."""
    named = call.parameters
    address = _find_address(call, caller)
    allocation_id = named.get("AllocationId") or (address.allocation_id if address else "*")
    yield caller.permission(call, caller.arn(call, f"elastic-ip/{allocation_id}"))
    if "InstanceId" in named:
        yield _on_instance(call, caller, named["InstanceId"])
    if "NetworkInterfaceId" in named:
        yield caller.permission(call, caller.arn(call, f"network-interface/{named['NetworkInterfaceId']}"))


def _find_address(call: ApiRequest, caller: Caller) -> Any:
    """Find the address named directly or by its association."""
    names = (call.parameters.get("PublicIp"), call.parameters.get("AssociationId"))
    for address in ec2_backends[caller.account][call.credential.region].addresses:
        if {address.public_ip, address.association_id} & {name for name in names if name}:
            return address
    return None


def _prefix_list(call: ApiRequest, caller: Caller) -> Iterator[Permission]:
    yield caller.permission(call, caller.arn(call, f"prefix-list/{call.parameters['PrefixListId']}"))


def _on_instance(call: ApiRequest, caller: Caller, instance_id: str) -> Permission:
    tags = ec2_backends[caller.account][call.credential.region].describe_tags(filters={"resource-id": [instance_id]})
    keys = ("aws:ResourceTag/", "ec2:ResourceTag/")
    context = {f"{key}{tag['key']}": (str(tag["value"]),) for key in keys for tag in tags}
    return caller.permission(call, caller.arn(call, f"instance/{instance_id}"), context=context)


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
