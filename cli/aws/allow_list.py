"""Read and change a cluster's allow list: the addresses that may reach its SSH port besides ``ssh_location``.

The list is an EC2 prefix list of the stack; only ``dlcluster allow-ip`` writes its entries. An entry's description
contains the time until which it is allowed.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from bootstrap.contract import ALLOW_LIST_OUTPUT, ALLOW_LIST_SIZE
from cli.aws.clusters import Cluster
from cli.errors import ClusterError
from stacks.settings.parsing import format_utc

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import ManagedPrefixListTypeDef, PrefixListEntryTypeDef

UNTIL: Final = re.compile(r"until (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)Z")
"""Description of an entry that expires."""
FOREVER: Final = "dlcluster allow-ip"
"""Description of an entry that never expires."""
BUSY: Final = frozenset(("IncorrectState", "PrefixListVersionMismatch"))
"""AWS's codes while another change of the list is in progress."""
CHANGE_TIMEOUT_S: Final = 60.0
"""Timeout for a change, in seconds; AWS takes one or two for each."""
LOOK_EVERY_S: Final = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class AllowedBlock:
    """One block of addresses on the list."""

    cidr: str
    until: datetime | None = None
    """None if the entry stays until it is removed."""

    def is_expired(self, now: datetime) -> bool:
        """Return True if its time has passed."""
        return self.until is not None and self.until <= now

    @property
    def request(self) -> Any:
        """Return the entry in EC2's request format."""
        return {"Cidr": self.cidr, "Description": f"until {format_utc(self.until)}" if self.until else FOREVER}


def allow_list_id(cluster: Cluster) -> str:
    """Return the ID of the cluster's list. Raises ClusterError if it has none."""
    if cluster.is_private:
        raise ClusterError(f"{cluster.name} is private: logins go through Session Manager, from any address")
    if cluster.allow_list is None:
        raise ClusterError(f"stack {cluster.stack_name} has no output {ALLOW_LIST_OUTPUT}: cdk deploy adds it")
    return cluster.allow_list


class AllowList:
    """The list of one cluster."""

    def __init__(
        self, ec2: "EC2Client", list_id: str, *, clock: Callable[[], float] = time.monotonic, sleep: Any = time.sleep
    ) -> None:
        self._ec2 = ec2
        self._id = list_id
        self._clock = clock
        self._sleep = sleep

    def entries(self) -> tuple[AllowedBlock, ...]:
        """Return the entries, in the order of their addresses."""
        return _entries(self._ec2.get_managed_prefix_list_entries(PrefixListId=self._id)["Entries"])

    def remove_expired(self, now: datetime) -> tuple[AllowedBlock, ...]:
        """Remove the expired entries and return them.

        Uses AWS's time, because a wrong clock here would remove colleagues from the list; ``now`` applies only if AWS
        gives none.
        """
        answer = self._ec2.get_managed_prefix_list_entries(PrefixListId=self._id)
        now = _answered_at(answer["ResponseMetadata"]["HTTPHeaders"].get("date", "")) or now
        if not any(entry.is_expired(now) for entry in _entries(answer["Entries"])):
            return ()
        # Select them again for each version: a colleague may have extended one in the meantime.
        return self._change(lambda present: ([entry for entry in present if entry.is_expired(now)], []))

    def add(self, entry: AllowedBlock) -> bool:
        """Add an entry, or change the end of an existing one; return True if anything changed.

        AWS cannot change a description, so the existing entry is removed first and new connections fail for some
        seconds.
        """
        if entry in self.entries():
            return False
        self._change(lambda present: ([current for current in present if _is_stale(current, entry)], []))
        self._change(lambda present: ([], self._room(present, entry)))
        return True

    def remove(self, cidr: str) -> bool:
        """Remove an entry; return True if it existed."""
        return bool(self._change(lambda present: ([entry for entry in present if entry.cidr == cidr], [])))

    def _room(self, present: Sequence[AllowedBlock], entry: AllowedBlock) -> list[AllowedBlock]:
        if entry in present:
            return []
        if len(present) >= ALLOW_LIST_SIZE:
            raise ClusterError(
                f"the list is full with {len(present)} addresses: dlcluster allow-ip --remove CIDR removes one"
            )
        return [entry]

    def _change(
        self, choose: Callable[[Sequence[AllowedBlock]], tuple[list[AllowedBlock], list[AllowedBlock]]]
    ) -> tuple[AllowedBlock, ...]:
        """Remove and add the entries that ``choose`` returns for the current ones; return those removed.

        Waits until AWS is done. Raises ClusterError at the deadline.
        """
        deadline = self._clock() + CHANGE_TIMEOUT_S
        while True:
            version = self._wait_until_stable(deadline)["Version"]
            removed, added = choose(self.entries())
            if not removed and not added:
                return ()
            if self._modify(version, removed, added):
                break
            self._wait(deadline)
        done = self._wait_until_stable(deadline)
        if done["State"].endswith("-failed"):
            raise ClusterError(f"AWS could not change the list {self._id}: {done.get('StateMessage', done['State'])}")
        return tuple(removed)

    def _modify(self, version: int, removed: Sequence[AllowedBlock], added: Sequence[AllowedBlock]) -> bool:
        """Change this version; return False if another change of the list is in progress."""
        try:
            self._ec2.modify_managed_prefix_list(
                PrefixListId=self._id,
                CurrentVersion=version,
                RemoveEntries=[{"Cidr": entry.cidr} for entry in removed],
                AddEntries=[entry.request for entry in added],
            )
        except ClientError as error:
            if error.response["Error"].get("Code") in BUSY:
                return False
            raise
        return True

    def _wait_until_stable(self, deadline: float) -> "ManagedPrefixListTypeDef":
        """Return the list once no change is in progress."""
        while True:
            [prefix_list] = self._ec2.describe_managed_prefix_lists(PrefixListIds=[self._id])["PrefixLists"]
            if not prefix_list["State"].endswith("-in-progress"):
                return prefix_list
            self._wait(deadline)

    def _wait(self, deadline: float) -> None:
        if self._clock() > deadline:
            raise ClusterError(f"waited {CHANGE_TIMEOUT_S:.0f} s for changes of the list {self._id} to end")
        self._sleep(LOOK_EVERY_S)


def _entries(described: "Sequence[PrefixListEntryTypeDef]") -> tuple[AllowedBlock, ...]:
    return tuple(sorted((_entry(entry["Cidr"], entry.get("Description", "")) for entry in described), key=_order))


def _answered_at(header: str) -> datetime | None:
    """Return the time of an HTTP Date header; None without one."""
    try:
        date = parsedate_to_datetime(header)
    except ValueError:
        return None
    return date if date.tzinfo else None


def _entry(cidr: str, description: str) -> AllowedBlock:
    return AllowedBlock(cidr=cidr, until=_until(description))


def _until(description: str) -> datetime | None:
    """Return the end of an entry; None if it has none or the description is not ours."""
    match = UNTIL.fullmatch(description)
    try:
        return datetime.fromisoformat(f"{match[1]}+00:00") if match else None
    except ValueError:
        return None


def _is_stale(present: AllowedBlock, wanted: AllowedBlock) -> bool:
    return present.cidr == wanted.cidr and present != wanted


def _order(entry: AllowedBlock) -> tuple[list[int], str]:
    return [int(part) for part in re.findall(r"\d+", entry.cidr)], entry.cidr
