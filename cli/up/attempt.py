"""Store the attempt in one zone as a tag of the workers' group, so that a killed run can be continued.

The attempt's token makes each of its LaunchInstances a single launch, however often it is sent.
"""

import re
import secrets
import time
from dataclasses import dataclass
from typing import Final

from bootstrap.aws.group_sizes import ClusterSizes
from bootstrap.contract import NODE_TYPES, WORKER, NodeType, group_name
from cli.aws.clients import Clients
from cli.node_groups.groups import GroupStates

ATTEMPT_TAG: Final = "deeplearning:up-attempt"
_VALUE: Final = re.compile(r"([0-9a-f]{16}) ([a-z0-9-]{1,40}) ([0-9]{1,4}) ([0-9]{1,4}) ([0-9]{1,12})")
TOKEN_LIFETIME_S: Final = 3 * 3600.0
"""Maximum age of a usable token, in seconds; AWS does not document how long it remembers one."""
MAX_BATCH: Final = 100
"""Largest number of instances per call (Amazon EC2 Auto Scaling API Reference, "LaunchInstances")."""
_GROUP: Final = "auto-scaling-group"


@dataclass(frozen=True, kw_only=True, slots=True)
class ZoneAttempt:
    """One attempt to start every node in a zone."""

    token: str
    zone: str
    counts: tuple[int, ...]
    """Numbers of nodes to launch, in the order of NODE_TYPES; other numbers make it another attempt."""
    started_at: int = 0
    """Time of its start, in seconds since the epoch."""

    @property
    def is_old(self) -> bool:
        """Return True if AWS may have forgotten the token."""
        return time.time() - self.started_at > TOKEN_LIFETIME_S

    def client_token(self, node_type: NodeType, batch: int) -> str:
        """Return the token of one call, which makes AWS answer a repeated call with the same instances."""
        return f"{self.token}/{node_type}/{batch}"

    @property
    def client_tokens(self) -> list[str]:
        """Return the tokens of all calls."""
        counted = zip(NODE_TYPES, self.counts, strict=True)
        return [self.client_token(each, batch) for each, count in counted for batch in range(-(-count // MAX_BATCH))]


def begin_attempt(clients: Clients, name: str, zone: str, declared: ClusterSizes) -> ZoneAttempt:
    """Record a new attempt."""
    attempt = ZoneAttempt(token=secrets.token_hex(8), zone=zone, counts=_counts(declared), started_at=int(time.time()))
    value = " ".join((attempt.token, zone, *map(str, (*attempt.counts, attempt.started_at))))
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


def find_attempt(groups: GroupStates, declared: ClusterSizes) -> ZoneAttempt | None:
    """Return the attempt to continue; None if there is none for these numbers of nodes.

    If a group's MaxSize is below the declared one, its nodes have been terminated since: AWS would only repeat its
    earlier answers for the attempt's tokens.
    """
    if any(groups[node_type].size.max_size < declared[node_type].max_size for node_type in NODE_TYPES):
        return None
    attempt = recorded_attempt(groups)
    return attempt if attempt is not None and attempt.counts == _counts(declared) else None


def recorded_attempt(groups: GroupStates) -> ZoneAttempt | None:
    """Return the attempt in the tag, whether or not it can continue."""
    match = _VALUE.fullmatch(groups[WORKER].tags.get(ATTEMPT_TAG, ""))
    if match is None:
        return None
    return ZoneAttempt(token=match[1], zone=match[2], counts=(int(match[3]), int(match[4])), started_at=int(match[5]))


def forget_attempt(clients: Clients, name: str) -> None:
    """Remove the record of an attempt, if there is one."""
    group = group_name(name, WORKER)
    clients.autoscaling.delete_tags(Tags=[{"ResourceId": group, "ResourceType": _GROUP, "Key": ATTEMPT_TAG}])


def _counts(declared: ClusterSizes) -> tuple[int, ...]:
    return tuple(declared[node_type].desired_capacity for node_type in NODE_TYPES)
