"""Test which events of a stack explain a failed deploy."""

from typing import Any

import boto3
from botocore.stub import Stubber

from cli.aws.stack_history import Event, find_newest_stack, last_failures, physical_ids, read_events

ID = "arn:aws:cloudformation:eu-west-1:1:stack/demo/"


def client() -> Any:
    return boto3.client("cloudformation", region_name="eu-west-1", aws_access_key_id="x", aws_secret_access_key="x")


def summary(name: str, number: int) -> dict[str, Any]:
    return {
        "StackId": f"{ID}{number}",
        "StackName": name,
        "CreationTime": f"2026-01-0{number}T00:00:00Z",
        "StackStatus": "DELETE_COMPLETE",
    }


def test_existing_stack_is_listed_first() -> None:
    cloudformation = client()
    with Stubber(cloudformation) as stub:
        stub.add_response(
            "describe_stacks",
            {"Stacks": [{**summary("demo", 1), "StackStatus": "ROLLBACK_COMPLETE"}]},
            {"StackName": "demo"},
        )
        found = find_newest_stack(cloudformation, "demo")
    assert found is not None
    assert (found.stack_id, found.status) == (f"{ID}1", "ROLLBACK_COMPLETE")


def test_last_deleted_stack_is_found_on_any_page() -> None:
    cloudformation = client()
    with Stubber(cloudformation) as stub:
        stub.add_client_error("describe_stacks", "ValidationError")
        wanted = {"StackStatusFilter": ["DELETE_COMPLETE"]}
        first = {"StackSummaries": [summary("other", 9), summary("demo", 2)], "NextToken": "more"}
        stub.add_response("list_stacks", first, wanted)
        last = {"StackSummaries": [summary("demo", 3), summary("demo", 1)]}
        stub.add_response("list_stacks", last, {**wanted, "NextToken": "more"})
        found = find_newest_stack(cloudformation, "demo")
        stub.assert_no_pending_responses()
    assert found is not None
    assert (found.stack_id, found.status) == (f"{ID}3", "DELETE_COMPLETE")


def test_returns_none_for_an_unknown_stack() -> None:
    cloudformation = client()
    with Stubber(cloudformation) as stub:
        stub.add_client_error("describe_stacks", "ValidationError")
        stub.add_response("list_stacks", {"StackSummaries": [summary("other", 9)]})
        assert find_newest_stack(cloudformation, "demo") is None


STACK, GROUP = "AWS::CloudFormation::Stack", "AWS::AutoScaling::AutoScalingGroup"
Line = tuple[str, str, str]


def described(lines: list[Line]) -> list[dict[str, Any]]:
    """Return events like CloudFormation, newest first."""
    return [
        {
            "StackId": ID,
            "EventId": str(number),
            "StackName": "demo",
            "Timestamp": f"2026-01-01T00:00:{number:02}Z",
            "LogicalResourceId": name,
            "PhysicalResourceId": f"{name}-1",
            "ResourceType": STACK if name == "demo" else GROUP,
            "ResourceStatus": status,
            "ResourceStatusReason": reason,
        }
        for number, (name, status, reason) in reversed(list(enumerate(lines)))
    ]


def read(lines: list[Line]) -> list[Event]:
    """Read the events in pages of three."""
    cloudformation, all_events = client(), described(lines)
    pages = [all_events[at : at + 3] for at in range(0, len(all_events), 3)]
    with Stubber(cloudformation) as stub:
        expected = {"StackName": ID}
        for number, page in enumerate(pages):
            more = {"NextToken": str(number)} if number + 1 < len(pages) else {}
            stub.add_response("describe_stack_events", {"StackEvents": page, **more}, expected)
            expected = {**expected, **more}
        found = read_events(cloudformation, ID)
        stub.assert_no_pending_responses()
    return found


CREATED: list[Line] = [("demo", "CREATE_IN_PROGRESS", "User Initiated"), ("demo", "CREATE_COMPLETE", "")]
FAILED: list[Line] = [
    ("demo", "CREATE_IN_PROGRESS", "User Initiated"),
    ("Workers", "CREATE_IN_PROGRESS", "Resource creation Initiated"),
    ("Workers", "CREATE_IN_PROGRESS", "Received FAILURE signal with UniqueId i-0123456789abcdef0 disk-full"),
    ("Workers", "CREATE_FAILED", "Received 1 FAILURE signal(s) out of 2"),
    ("Master", "CREATE_FAILED", "Resource creation cancelled"),
    ("demo", "ROLLBACK_IN_PROGRESS", "The following resource(s) failed to create: [Workers, Master]."),
    ("demo", "ROLLBACK_COMPLETE", ""),
]
DELETED: list[Line] = [("demo", "DELETE_IN_PROGRESS", "User Initiated"), ("demo", "DELETE_COMPLETE", "")]


def reasons(lines: list[Line]) -> list[str]:
    return [event.reason for event in last_failures(read(lines))]


def test_cause_is_listed_first_without_cancelled_resources() -> None:
    assert reasons(FAILED) == [FAILED[2][2], FAILED[3][2]]


def test_failed_deploy_is_remembered_after_its_stack_was_deleted() -> None:
    assert reasons([*FAILED, *DELETED]) == reasons(FAILED)


def test_only_the_last_failed_change_is_explained() -> None:
    later: list[Line] = [
        ("demo", "UPDATE_IN_PROGRESS", "User Initiated"),
        ("Workers", "UPDATE_FAILED", "You have no quota"),
        ("demo", "UPDATE_ROLLBACK_IN_PROGRESS", ""),
    ]
    assert reasons([*FAILED, *later]) == ["You have no quota"]


def test_successful_history_has_no_reasons() -> None:
    assert reasons([*CREATED, *DELETED]) == []


def test_resources_are_found_by_their_type() -> None:
    assert physical_ids(read(FAILED), GROUP) == ["Workers-1", "Master-1"]
