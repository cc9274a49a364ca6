"""Test the calls of LaunchInstances: batches, constant tokens, and calls whose outcome is still pending."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError

from bootstrap.aws.group_sizes import PAUSED
from bootstrap.contract import MASTER, WORKER
from cli.cluster_lock import LockHeldError
from cli.node_groups.groups import GroupState
from cli.up.attempt import ZoneAttempt
from cli.up.launch import Launch, LaunchOutcomeUnknownError, LaunchResult
from stacks.settings.nodes import declared_sizes

ATTEMPT = ZoneAttempt(token="0123456789abcdef", zone="us-east-1a", counts=(1, 101))
DECLARED = declared_sizes(worker_count=101, needed_workers=101)


def launched(count: int, **error: str) -> dict[str, Any]:
    ids = [f"i-{number:017x}" for number in range(count)]
    return {"Instances": [{"InstanceIds": ids}] if ids else [], "Errors": [error] if error else []}


class AutoScaling:
    """Answers LaunchInstances from a list, and records the requests."""

    def __init__(self, *answers: Any) -> None:
        self.answers = [*answers]
        self.requests: list[dict[str, Any]] = []

    def launch_instances(self, **request: Any) -> Any:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def launch(
    autoscaling: AutoScaling, workers: GroupState | None = None, before_call: Callable[[], None] = lambda: None
) -> dict[Any, LaunchResult]:
    clients: Any = SimpleNamespace(autoscaling=autoscaling)
    empty = GroupState(name="", size=PAUSED, instances={})
    made = Launch(clients=clients, name="demo", attempt=ATTEMPT, declared=DECLARED, before_call=before_call)
    return made.run({MASTER: empty, WORKER: workers or empty})


def test_workers_come_first_and_a_hundred_at_a_time() -> None:
    aws = AutoScaling(launched(100), launched(1), launched(1))
    assert launch(aws) == {WORKER: LaunchResult(count=101), MASTER: LaunchResult(count=1)}
    sent = [(r["AutoScalingGroupName"], r["RequestedCapacity"], r["ClientToken"]) for r in aws.requests]
    assert sent == [
        ("demo-worker", 100, "0123456789abcdef/worker/0"),
        ("demo-worker", 1, "0123456789abcdef/worker/1"),
        ("demo-master", 1, "0123456789abcdef/master/0"),
    ]
    assert all((r["AvailabilityZones"], r["RetryStrategy"]) == (["us-east-1a"], "none") for r in aws.requests)


def test_no_launch_is_requested_after_a_refusal() -> None:
    aws = AutoScaling(launched(40, ErrorCode="InsufficientInstanceCapacity", ErrorMessage="too\n few"))
    found = launch(aws)[WORKER]
    assert (found.count, found.reason) == (40, "InsufficientInstanceCapacity: too few")
    assert len(aws.requests) == 1


def test_call_without_an_answer_is_repeated_with_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("cli.up.launch.time.sleep", pauses.append)
    busy = ClientError({"Error": {"Code": "IdempotentCallInProgress", "Message": ""}}, "LaunchInstances")
    late = ReadTimeoutError(endpoint_url="")
    aws = AutoScaling(busy, late, launched(0), launched(99), launched(100), launched(1), launched(1))
    assert launch(aws)[WORKER].count == 101
    assert (len(pauses), aws.requests[:4]) == (4, [aws.requests[4]] * 4)


def test_call_that_stays_without_an_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.up.launch.ANSWER_TIMEOUT_S", -1.0)
    with pytest.raises(LaunchOutcomeUnknownError, match="0 of 100 instances were launched, and EC2 gave no error"):
        launch(AutoScaling(launched(0)))


def test_no_launch_is_requested_for_a_complete_group() -> None:
    workers = GroupState(name="", size=DECLARED[WORKER], instances={f"i-{n}": "InService" for n in range(101)})
    aws = AutoScaling(launched(1))
    assert launch(aws, workers=workers)[WORKER] == LaunchResult(count=101)
    assert [request["AutoScalingGroupName"] for request in aws.requests] == ["demo-master"]


def test_lock_lifetime_covers_the_longest_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.up.launch.time.sleep", lambda _: None)
    busy = ClientError({"Error": {"Code": "InternalServerError", "Message": ""}}, "PutItem")
    answers: list[Exception | None] = [EndpointConnectionError(endpoint_url=""), busy, None, None, None]

    def hold() -> None:
        if answer := answers.pop(0):
            raise answer

    aws = AutoScaling(launched(100), launched(1), launched(1))
    assert launch(aws, before_call=hold)[MASTER].count == 1
    answers.append(LockHeldError("another"))
    with pytest.raises(LockHeldError):
        launch(aws, before_call=hold)
    assert len(aws.requests) == 3
