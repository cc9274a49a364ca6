"""Implement customer-managed prefix lists like EC2: versions, sizes and states, and lists from a template.

moto adds an entry twice, accepts any version, ignores MaxEntries and forgets the name of a modified list. For the
addresses that the rules with a list admit, see local/node/inventory.
"""

import time
from collections.abc import Sequence
from typing import Any, Final

from moto.core.common_models import CloudFormationModel
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend, ec2_backends
from moto.ec2.models.managed_prefixes import ManagedPrefixList, ManagedPrefixListBackend

from local.control_plane.moto_patching import wrap

MODIFY_S: Final = 0.5
"""Duration of a modification in seconds; until then, AWS refuses another one."""
_Entries = list[dict[str, str]]
_SETTLED_AT: dict[str, float] = {}
"""Monotonic time at which the last modification of a list ends."""


def install() -> None:
    """Patch moto: check modifications, and answer for unknown lists, as EC2 does."""
    wrap(ManagedPrefixListBackend, "modify_managed_prefix_list", _modify)
    wrap(ManagedPrefixListBackend, "describe_managed_prefix_lists", _describe)
    wrap(ManagedPrefixListBackend, "get_managed_prefix_list_entries", _get_entries)


class _PrefixList(ManagedPrefixList, CloudFormationModel):
    # moto derives an object's service from the second part of its module's name
    __module__ = "moto.ec2"

    @property
    def physical_resource_id(self) -> str:
        return str(self.id)

    @staticmethod
    def cloudformation_name_type() -> str:
        return ""

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::EC2::PrefixList"

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:
        return attr in ("PrefixListId", "Arn", "OwnerId")

    def get_cfn_attribute(self, attribute_name: str) -> str:
        return str({"Arn": self.prefix_list_arn, "OwnerId": self.owner_id}.get(attribute_name, self.id))

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: dict[str, Any], account_id: str, region_name: str, **_: Any
    ) -> "_PrefixList":
        properties, backend = cloudformation_json["Properties"], ec2_backends[account_id][region_name]
        prefix_list = cls(
            backend,
            region_name,
            address_family=properties["AddressFamily"],
            max_entries=str(properties["MaxEntries"]),
            prefix_list_name=properties["PrefixListName"],
        )
        prefix_list.entries = {1: list(properties.get("Entries", []))}
        backend.managed_prefix_lists[prefix_list.id] = prefix_list
        return prefix_list

    def is_created(self) -> bool:
        return True

    def delete(self, _account: str, _region: str) -> None:
        """Remove the list."""
        self.ec2_backend.managed_prefix_lists.pop(self.id, None)


def update(prefix_list: _PrefixList, _old: dict[str, Any], new: dict[str, Any]) -> None:
    """Update a list in place; a template without entries leaves them alone."""
    prefix_list.prefix_list_name, prefix_list.max_entries = new["PrefixListName"], str(new["MaxEntries"])
    if "Entries" in new:
        _set_entries(prefix_list, list(new["Entries"]))


def _describe(
    original: Any, backend: EC2Backend, prefix_list_ids: list[str] | None = None, filters: Any = None
) -> list[ManagedPrefixList]:
    for name in prefix_list_ids or []:
        _find(backend, name)
    prefix_lists: list[ManagedPrefixList] = original(backend, prefix_list_ids=prefix_list_ids, filters=filters)
    for prefix_list in prefix_lists:
        if prefix_list.state == "modify-in-progress" and not _is_changing(prefix_list):
            prefix_list.state = "modify-complete"
    return prefix_lists


def _get_entries(_original: Any, backend: EC2Backend, prefix_list_id: str) -> ManagedPrefixList:
    return _find(backend, prefix_list_id)


def _modify(
    _original: Any,
    backend: EC2Backend,
    add_entry: Sequence[dict[str, str]],
    remove_entry: Sequence[dict[str, str]],
    prefix_list_id: str,
    current_version: int | None = None,
    prefix_list_name: str | None = None,
) -> ManagedPrefixList:
    prefix_list = _find(backend, prefix_list_id)
    if _is_changing(prefix_list):
        message = f"while the prefix list ({prefix_list.id}) is in the current state (modify-in-progress)"
        raise EC2ClientError("IncorrectState", f"The request cannot be completed {message}.")
    if current_version is not None and current_version != prefix_list.version:
        raise EC2ClientError("PrefixListVersionMismatch", "The prefix list has the incorrect version number.")
    prefix_list.prefix_list_name = prefix_list_name or prefix_list.prefix_list_name
    if add_entry or remove_entry:
        _set_entries(
            prefix_list, _changed_entries(prefix_list, list(add_entry), [entry["Cidr"] for entry in remove_entry])
        )
        _SETTLED_AT[prefix_list.id] = time.monotonic() + MODIFY_S
        prefix_list.state = "modify-in-progress"
    return prefix_list


def current_entries(prefix_list: ManagedPrefixList) -> _Entries:
    """Return the entries of the newest version; AWS's own lists have no versions, and theirs are under the first."""
    return list(prefix_list.entries.get(prefix_list.version or 1) or [])


def _changed_entries(prefix_list: ManagedPrefixList, added: _Entries, removed: list[str]) -> _Entries:
    entries = current_entries(prefix_list)
    for cidr in removed:
        if cidr in [entry["Cidr"] for entry in added]:
            both = "in both AddPrefixListEntries and RemovePrefixListEntries"
            raise EC2ClientError("InvalidParameterValue", f"Request cannot contain Cidr {cidr} {both}")
        if cidr not in [entry["Cidr"] for entry in entries]:
            raise EC2ClientError("InvalidPrefixListModification", f"An entry with the CIDR ({cidr}) does not exist.")
    entries = [entry for entry in entries if entry["Cidr"] not in removed]
    for entry in added:
        for other in entries:
            if other["Cidr"] == entry["Cidr"]:
                message = f"An entry with the CIDR ({entry['Cidr']}) and description ({other.get('Description', '')})"
                raise EC2ClientError("InvalidPrefixListModification", f"{message} already exists.")
        entries.append(entry)
    if len(entries) > int(prefix_list.max_entries or 0):
        message = f"The prefix list ({prefix_list.id}) can have at most {prefix_list.max_entries} entries."
        raise EC2ClientError("PrefixListMaxEntriesExceeded", message)
    return entries


def _set_entries(prefix_list: ManagedPrefixList, entries: _Entries) -> None:
    prefix_list.version = int(prefix_list.version or 0) + 1
    prefix_list.entries[prefix_list.version] = entries


def _is_changing(prefix_list: ManagedPrefixList) -> bool:
    return time.monotonic() < _SETTLED_AT.get(prefix_list.id, 0.0)


def _find(backend: EC2Backend, prefix_list_id: str) -> ManagedPrefixList:
    try:
        prefix_list: ManagedPrefixList = backend.managed_prefix_lists[prefix_list_id]
    except KeyError:
        message = f"The prefix list ID '{prefix_list_id}' does not exist."
        raise EC2ClientError("InvalidPrefixListID.NotFound", message) from None
    return prefix_list
