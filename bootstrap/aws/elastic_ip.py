"""Associate the cluster's Elastic IP with the current master."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

log = logging.getLogger(__name__)

METADATA_DELAY_S: Final = 15.0
"""Seconds for the metadata service to show a new association, during which the agent makes no other."""


class ElasticIp:
    """The cluster's Elastic IP, which a new master takes over from its predecessor."""

    def __init__(
        self,
        ec2: "EC2Client",
        *,
        address: str,
        allocation_id: str,
        instance_id: str,
        monotonic: Callable[[], float],
    ) -> None:
        self._ec2 = ec2
        self._address = address
        self._allocation_id = allocation_id
        self._instance_id = instance_id
        self._monotonic = monotonic
        self._not_before = 0.0

    def associate(self, public_address: str | None) -> None:
        """Associate the address unless it is already ``public_address``, this instance's current one."""
        if public_address == self._address or self._monotonic() < self._not_before:
            return
        # AllowReassociation: a lost master may still have the address and cannot release it.
        self._ec2.associate_address(
            AllocationId=self._allocation_id, InstanceId=self._instance_id, AllowReassociation=True
        )
        log.info("associated the Elastic IP %s", self._address)
        self._not_before = self._monotonic() + METADATA_DELAY_S
