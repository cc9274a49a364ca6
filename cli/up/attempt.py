"""Keep the attempt in one zone as a tag of the workers' group, so that a call which was killed can be continued.

The token in it makes each LaunchInstances of the attempt one launch however often it is sent.
"""

import re
import secrets
from dataclasses import dataclass
from typing import Final

from bootstrap.aws.group_sizes import ClusterSizes
from bootstrap.contract import NODE_TYPES, WORKER, NodeType, group_name
from cli.aws.clients import Clients
from cli.sizes.groups import GroupStates

ATTEMPT_TAG: Final = "deeplearning:up-attempt"
_VALUE: Final = re.compile(r"([0-9a-f]{16}) ([a-z0-9-]{1,40}) ([0-9]{1,4}) ([0-9]{1,4})")
_GROUP: Final = "auto-scaling-group"


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One try to start every node in a zone."""

    token: str
    zone: str
    counts: tuple[int, ...]
    """Nodes to launch, in the order of NODE_TYPES: another number of nodes is another attempt."""

    def client_token(self, node_type: NodeType, batch: int) -> str:
        """Return the token of one call, which makes AWS answer a repetition with the same instances."""
        return f"{self.token}/{node_type}/{batch}"


def begin(clients: Clients, name: str, zone: str, declared: ClusterSizes) -> Attempt:
    """Record a new attempt."""
    attempt = Attempt(token=secrets.token_hex(8), zone=zone, counts=_counts(declared))
    value = " ".join((attempt.token, zone, *map(str, attempt.counts)))
    group = group_name(name, WORKER)
    clients.autoscaling.create_or_update_tags(
        Tags=[
            {
                "ResourceId": group,
                "ResourceType": _GROUP,
                "Key": ATTEMPT_TAG,
                "Value": value,
                "PropagateAtLaunch": False,
            }
        ]
    )
    return attempt


def find(groups: GroupStates, declared: ClusterSizes) -> Attempt | None:
    """Return the attempt that goes on; None if there is none for that many nodes.

    Groups that are closed again were emptied since: the attempt's tokens would only repeat what AWS answered then.
    """
    if any(groups[node_type].size.most < declared[node_type].most for node_type in NODE_TYPES):
        return None
    match = _VALUE.fullmatch(groups[WORKER].tags.get(ATTEMPT_TAG, ""))
    if match is None:
        return None
    attempt = Attempt(token=match[1], zone=match[2], counts=(int(match[3]), int(match[4])))
    return attempt if attempt.counts == _counts(declared) else None


def forget(clients: Clients, name: str) -> None:
    """Remove the record of an attempt, if there is one."""
    group = group_name(name, WORKER)
    clients.autoscaling.delete_tags(Tags=[{"ResourceId": group, "ResourceType": _GROUP, "Key": ATTEMPT_TAG}])


def _counts(declared: ClusterSizes) -> tuple[int, ...]:
    return tuple(declared[node_type].desired for node_type in NODE_TYPES)
