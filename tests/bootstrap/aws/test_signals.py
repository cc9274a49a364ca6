"""Test the signals to CloudFormation: sent once, with the reason of a failure."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from bootstrap.aws.clients import Clients
from bootstrap.aws.signals import StackSignal, failure_id
from bootstrap.config import SignalTarget

TARGET = SignalTarget(region="eu-west-1", stack_id="stack", signal_resource="Group")
SUCCESS = {"StackName": "stack", "LogicalResourceId": "Group", "UniqueId": "i-1", "Status": "SUCCESS"}


@pytest.fixture
def stubber(clients: Clients) -> Iterator[Stubber]:
    with Stubber(clients.cloudformation) as stubber:
        yield stubber


@pytest.fixture
def sent_file(tmp_path: Path) -> Path:
    return tmp_path / "lib" / "signaled"


def stack_signal(clients: Clients, sent_file: Path, *, instance_id: str = "i-1") -> StackSignal:
    return StackSignal(clients.cloudformation, target=TARGET, instance_id=instance_id, sent_file=sent_file)


def test_success_is_remembered_across_restarts(clients: Clients, stubber: Stubber, sent_file: Path) -> None:
    stubber.add_response("signal_resource", {}, SUCCESS)
    first = stack_signal(clients, sent_file)
    assert not first.is_settled
    first.send_success()
    assert first.is_settled
    assert stack_signal(clients, sent_file).is_settled


def test_instance_of_a_nodes_image_signals_again(clients: Clients, stubber: Stubber, sent_file: Path) -> None:
    stubber.add_response("signal_resource", {}, SUCCESS)
    stack_signal(clients, sent_file).send_success()
    assert not stack_signal(clients, sent_file, instance_id="i-2").is_settled


def test_failure_signal_contains_its_reason(clients: Clients, stubber: Stubber, sent_file: Path) -> None:
    sentence = {"UniqueId": "i-1 disk-full", "Status": "FAILURE"}
    stubber.add_response("signal_resource", {}, SUCCESS | sentence)
    assert stack_signal(clients, sent_file).send_failure("disk-full")
    stubber.assert_no_pending_responses()


def refuse_as_too_late(stubber: Stubber) -> None:
    stubber.add_client_error(
        "signal_resource",
        "ValidationError",
        "Stack arn:aws:cloudformation:eu-west-1:1:stack/stack/1 is in CREATE_COMPLETE state and cannot be signaled",
    )


def test_late_failure_is_settled_only_by_the_caller(clients: Clients, stubber: Stubber, sent_file: Path) -> None:
    refuse_as_too_late(stubber)
    late = stack_signal(clients, sent_file)
    assert not late.send_failure("disk-full")
    # The caller must deal with the node first: an agent that is killed in between must not forget it.
    assert not late.is_settled
    assert not stack_signal(clients, sent_file).is_settled
    late.mark_settled("disk-full")
    assert stack_signal(clients, sent_file).is_settled


def test_late_success_is_settled_without_an_error(clients: Clients, stubber: Stubber, sent_file: Path) -> None:
    refuse_as_too_late(stubber)
    late = stack_signal(clients, sent_file)
    late.send_success()
    assert late.is_settled


@pytest.mark.parametrize(
    ("code", "message"),
    [("Throttling", "Rate exceeded"), ("AccessDenied", "not authorized"), ("ValidationError", "bad name")],
)
def test_other_cloudformation_errors_are_raised(
    clients: Clients, stubber: Stubber, sent_file: Path, code: str, message: str
) -> None:
    stubber.add_client_error("signal_resource", code, message)
    refused = stack_signal(clients, sent_file)
    with pytest.raises(ClientError, match=message):
        refused.send_success()
    assert not refused.is_settled
    assert not sent_file.exists()


def test_failure_id_is_cut_to_what_cloudformation_takes() -> None:
    assert failure_id("i-0123456789abcdef0", "peers 2/3 joined") == "i-0123456789abcdef0 peers 2/3 joined"
    assert len(failure_id("i-0123456789abcdef0", "x" * 90)) == 64
