"""The cluster's stable address: whoever is master has it."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

log = logging.getLogger(__name__)

ASK_AGAIN_S: Final = 15.0
"""The metadata service tells of an association a moment after EC2 has made it."""


class ElasticIp:
    """An Elastic IP that this master takes over from whoever has it."""

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

    def take(self, public_address: str | None) -> None:
        """Have the address; ``public_address`` is what this instance has now."""
        if public_address == self._address or self._monotonic() < self._not_before:
            return
        # AllowReassociation: the last master may still hold it, and cannot be asked.
        self._ec2.associate_address(
            AllocationId=self._allocation_id, InstanceId=self._instance_id, AllowReassociation=True
        )
        log.info("took over the address %s", self._address)
        self._not_before = self._monotonic() + ASK_AGAIN_S
