"""Read a stack's history from CloudFormation, which keeps a deleted stack's for 90 days."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_cloudformation.type_defs import StackTypeDef

STACK_TYPE: Final = "AWS::CloudFormation::Stack"
_BEGINNINGS: Final = ("CREATE_IN_PROGRESS", "UPDATE_IN_PROGRESS", "DELETE_IN_PROGRESS")
_CONSEQUENCES: Final = ("Resource creation cancelled", "Resource update cancelled")
"""Reasons of resources that CloudFormation cancelled because another one had failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StackState:
    """The newest stack of a name."""

    name: str
    stack_id: str
    status: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """One event of a stack's history."""

    time: datetime
    logical_id: str
    physical_id: str
    resource_type: str
    status: str
    reason: str

    @property
    def is_failure(self) -> bool:
        """Return True if the event explains a failure. A node's reason precedes its group's status."""
        is_reported = self.status.endswith("_FAILED") or self.reason.startswith("Received FAILURE signal")
        return is_reported and not self.reason.startswith(_CONSEQUENCES)


def describe_stack(cloudformation: "CloudFormationClient", name: str) -> "StackTypeDef | None":
    """Return the stack that currently has this name, if any; this needs no permission to see other stacks."""
    try:
        return cloudformation.describe_stacks(StackName=name)["Stacks"][0]
    except ClientError as error:
        if error.response["Error"]["Code"] != "ValidationError":  # the stack does not exist
            raise
        return None


def find_newest_stack(cloudformation: "CloudFormationClient", name: str) -> StackState | None:
    """Return the stack of that name: the current one, or else the last deleted one."""
    stack = describe_stack(cloudformation, name)
    if stack is not None:
        return StackState(name=name, stack_id=stack["StackId"], status=stack["StackStatus"])
    pages = cloudformation.get_paginator("list_stacks").paginate(StackStatusFilter=["DELETE_COMPLETE"])
    deleted = [stack for page in pages for stack in page["StackSummaries"] if stack["StackName"] == name]
    if not deleted:
        return None
    last = max(deleted, key=lambda stack: stack["CreationTime"])
    return StackState(name=name, stack_id=last["StackId"], status=last["StackStatus"])


def read_events(cloudformation: "CloudFormationClient", stack_id: str) -> list[Event]:
    """Return the stack's events, oldest first."""
    pages = cloudformation.get_paginator("describe_stack_events").paginate(StackName=stack_id)
    newest_first = [
        Event(
            time=event["Timestamp"],
            logical_id=event.get("LogicalResourceId", ""),
            physical_id=event.get("PhysicalResourceId", ""),
            resource_type=event.get("ResourceType", ""),
            status=event.get("ResourceStatus", ""),
            reason=event.get("ResourceStatusReason", ""),
        )
        for page in pages
        for event in page["StackEvents"]
    ]
    return newest_first[::-1]


def last_failures(events: Sequence[Event]) -> list[Event]:
    """Return the failures of the last failed change, the cause first."""
    failed = [[event for event in change if event.is_failure] for change in _changes(events)]
    return next((failures for failures in reversed(failed) if failures), [])


def _changes(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Split the events by deploy and destroy; a rollback belongs to the change that it reverts."""
    change: list[Event] = []
    for event in events:
        if event.resource_type == STACK_TYPE and event.status in _BEGINNINGS:
            yield change
            change = []
        change.append(event)
    yield change


def physical_ids(events: Sequence[Event], resource_type: str) -> list[str]:
    """Return AWS's ids of the stack's resources of a type, in the order of their creation."""
    return list(dict.fromkeys(e.physical_id for e in events if e.resource_type == resource_type and e.physical_id))
