"""Launch with network interfaces that EC2 accepts, and with some that it refuses."""

from typing import Any

import pytest
from moto.ec2.exceptions import EC2ClientError

from local.control_plane.ec2.run_instances.network_interfaces import check_interfaces
from stacks.catalog.gpu_types import GPU_TYPES
from stacks.nodes.network_interfaces import network_interfaces

EFA = {"NetworkCardIndex": 0, "DeviceIndex": 0, "InterfaceType": "efa"}
ENA = EFA | {"InterfaceType": "interface"}
SECOND = {"NetworkCardIndex": 1, "DeviceIndex": 0, "InterfaceType": "efa-only"}


@pytest.mark.parametrize(
    ("instance_type", "interfaces", "refusal"),
    [
        (
            "p4d.24xlarge",
            [EFA, {"NetworkCardIndex": 1, "DeviceIndex": 1, "AssociatePublicIpAddress": True}],
            r"InvalidParameterCombination.*associatePublicIPAddress parameter cannot be specified when launching with",
        ),
        (
            "p4d.24xlarge",
            [ENA, SECOND | {"AssociatePublicIpAddress": "true"}],
            r"InvalidParameterValue.*EFA-only network interfaces do not support IP addresses",
        ),
        (
            "p4d.24xlarge",
            [SECOND | {"NetworkCardIndex": 0}, SECOND],
            r"InvalidParameterValue.*An EFA-only network interface cannot be the primary network interface",
        ),
        (
            "p4d.24xlarge",
            [ENA, ENA | {"NetworkCardIndex": 4, "DeviceIndex": 1}],
            r"InvalidParameterValue.*Network card index 4 is not valid for p4d\.24xlarge, which has 4 network cards",
        ),
        (
            "m5.large",
            [ENA, SECOND | {"InterfaceType": "interface"}],
            r"InvalidParameterValue.*Network card index 1 is not valid for m5\.large",
        ),
        ("g5.xlarge", [EFA], r"UnsupportedOperation.*EFA interfaces are not supported on g5\.xlarge"),
        (
            "p6-b300.48xlarge",
            [EFA],
            r"AttachmentLimitExceeded.*EFA interface count 1 exceeds allowed limit for p6-b300\.48xlarge\. "
            r"Network Card 0 \(requested: 1, limit: 0\)",
        ),
        ("p4d.24xlarge", [EFA, EFA | {"DeviceIndex": 1}], r"Network Card 0 \(requested: 2, limit: 1\)"),
    ],
)
def test_refuses_what_ec2_refuses(instance_type: str, interfaces: list[dict[str, Any]], refusal: str) -> None:
    with pytest.raises(EC2ClientError) as raised:
        check_interfaces(interfaces, instance_type=instance_type)
    raised.match(refusal)


def test_takes_the_clusters_own_interfaces() -> None:
    for known in GPU_TYPES.values():
        if known.efa_interfaces:
            check_interfaces(network_interfaces(known, []), instance_type=known.name)
    check_interfaces([EFA | {"AssociatePublicIpAddress": True}], instance_type="g5.8xlarge")


@pytest.mark.parametrize("answer", [False, "false"])
def test_takes_several_interfaces_that_ask_for_no_public_address(answer: bool | str) -> None:
    # AWS's own example ("Maximize network bandwidth on EC2 instances with multiple network cards") does.
    no = {"AssociatePublicIpAddress": answer}
    check_interfaces([ENA | no, SECOND | no], instance_type="p4d.24xlarge")
