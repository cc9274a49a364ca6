"""Let only one ``dlcluster up`` at a time work on a cluster: two would end each other's nodes.

The owner is a tag of the workers' group, next to the attempt. Tags have no conditional write, so the tag is read again
before each launch and each move: of two calls started in the same second, the one that wrote first gives up.
"""

import os
import re
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from bootstrap.contract import WORKER, group_name
from cli.aws.clients import Clients
from cli.errors import ClusterError
from cli.sizes.groups import read_groups

OWNER_TAG: Final = "deeplearning:up-owner"
STALE_S: Final = 1200.0
"""Age in seconds from which an owner on another machine counts as dead; longer than the longest pause, because clocks
differ."""
SETTLE_S: Final = 2.0
"""Seconds after which a simultaneously written tag is visible."""
_VALUE: Final = re.compile(r"([0-9]{1,12}) ([0-9]{1,10}) (\S{1,40}) (\S{1,170})")
_NOT_ALLOWED: Final = re.compile(r"[^A-Za-z0-9+=._:/@-]")
_GROUP: Final = "auto-scaling-group"


class TakenError(ClusterError):
    """Another dlcluster up is working on the cluster, so its nodes are not ours to end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lock:
    """The right to change a cluster's groups."""

    clients: Clients
    name: str
    caller: str
    """ARN of the user."""

    def acquire(self) -> None:
        """Become the owner. Raises TakenError."""
        self.hold()
        time.sleep(SETTLE_S)
        self.hold()

    def hold(self) -> None:
        """Record that this call is still running. Raises TakenError if another one is."""
        tags = read_groups(self.clients.autoscaling, self.name)[WORKER].tags
        found = _VALUE.fullmatch(tags.get(OWNER_TAG, ""))
        if found is not None and not self._is_own(found) and not _is_dead(found):
            since = f"{datetime.fromtimestamp(int(found[1])).astimezone():%H:%M}"
            raise TakenError(
                f"{found[4]} runs dlcluster up of {self.name} on {found[3]}, last seen at {since}: wait until it ends, "
                f"or {STALE_S / 60:.0f} minutes after it was killed"
            )
        value = f"{time.time():.0f} {os.getpid()} {_host()} {_NOT_ALLOWED.sub('-', self.caller)[-170:]}"
        self.clients.autoscaling.create_or_update_tags(
            Tags=[
                {
                    "ResourceId": group_name(self.name, WORKER),
                    "ResourceType": _GROUP,
                    "Key": OWNER_TAG,
                    "Value": value,
                    "PropagateAtLaunch": False,
                }
            ]
        )

    def release(self) -> None:
        """Let other calls start; if AWS cannot be reached, they wait until this owner is stale."""
        with suppress(Exception):
            found = _VALUE.fullmatch(read_groups(self.clients.autoscaling, self.name)[WORKER].tags.get(OWNER_TAG, ""))
            if found is None or not self._is_own(found):
                return
            group = group_name(self.name, WORKER)
            self.clients.autoscaling.delete_tags(Tags=[{"ResourceId": group, "ResourceType": _GROUP, "Key": OWNER_TAG}])

    def _is_own(self, found: re.Match[str]) -> bool:
        return (int(found[2]), found[3]) == (os.getpid(), _host())


def _is_dead(found: re.Match[str]) -> bool:
    """Return True if the owner was killed: its process on this machine is gone, or it has been silent too long."""
    if time.time() - int(found[1]) > STALE_S:
        return True
    if found[3] != _host():
        return False
    try:
        os.kill(int(found[2]), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def _host() -> str:
    return _NOT_ALLOWED.sub("-", socket.gethostname())[:40] or "-"
