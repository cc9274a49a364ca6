"""Cache EC2's description of the cluster's instances, to save calls."""

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from bootstrap.cluster.discovery import Instance, describe_instances

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

REFRESH_PASSES: Final = 3
"""Number of reconciliations after which EC2 is always called: it reports a crash before Auto Scaling does."""
ABSENT_ANSWERS: Final = 10
"""Number of consecutive answers without an instance before it counts as gone: EC2's API is eventually consistent."""


class Ec2Cache:
    """Caches EC2's last description of each instance, and counts the answers that lacked it."""

    def __init__(self, ec2: "EC2Client") -> None:
        self._ec2 = ec2
        self._asked: frozenset[str] = frozenset()
        self._found: dict[str, Instance] = {}
        self._absent: Counter[str] = Counter()
        self._skipped = 0

    def describe(self, *, group_instances: Collection[str], members: Collection[str]) -> dict[str, Instance]:
        """Return the instances; call EC2 if the answer may have changed."""
        asked = frozenset(group_instances) | frozenset(members)
        is_stable = asked == frozenset(group_instances) and all(map(self._can_be_member, asked))
        self._skipped += 1
        if asked != self._asked or not is_stable or self._skipped >= REFRESH_PASSES:
            self._found = describe_instances(self._ec2, asked)
            self._asked, self._skipped = asked, 0
            self._absent = Counter({name: self._absent[name] + 1 for name in asked - self._found.keys()})
        return self._found

    def has_left(self, instance_id: str) -> bool:
        """Return True if an instance without a group can never be a member again."""
        instance = self._found.get(instance_id)
        return self._absent[instance_id] >= ABSENT_ANSWERS if instance is None else instance.has_left

    def _can_be_member(self, instance_id: str) -> bool:
        return instance_id in self._found and self._found[instance_id].can_be_member
