"""What EC2 says of the instances that matter, without asking it in every look."""

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from bootstrap.cluster.discovery import Instance, describe_instances

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

EVERY: Final = 3
"""Looks after which EC2 is asked although nothing has changed: it knows of a crash before Auto Scaling does."""
ABSENT_LOOKS: Final = 10
"""EC2's API is eventually consistent: an instance is forgotten only when so many answers lack it, one after another."""


class Ec2Cache:
    """EC2's last word on each instance."""

    def __init__(self, ec2: "EC2Client") -> None:
        self._ec2 = ec2
        self._asked: frozenset[str] = frozenset()
        self._found: dict[str, Instance] = {}
        self._absent: Counter[str] = Counter()
        self._skipped = 0

    def look(self, *, grouped: Collection[str], members: Collection[str]) -> dict[str, Instance]:
        """The instances that EC2 knows, asked anew when the answer can differ from the last one."""
        asked = frozenset(grouped) | frozenset(members)
        settled = asked == frozenset(grouped) and all(self._reachable(instance_id) for instance_id in asked)
        self._skipped += 1
        if asked != self._asked or not settled or self._skipped >= EVERY:
            self._found = describe_instances(self._ec2, asked)
            self._asked, self._skipped = asked, 0
            self._absent = Counter({name: self._absent[name] + 1 for name in asked - self._found.keys()})
        return self._found

    def gone(self, instance_id: str) -> bool:
        """Whether it is certain that an instance which no group has will never be a member again."""
        instance = self._found.get(instance_id)
        return self._absent[instance_id] >= ABSENT_LOOKS if instance is None else instance.gone

    def _reachable(self, instance_id: str) -> bool:
        return instance_id in self._found and self._found[instance_id].reachable
