import argparse
from typing import Any, cast

import pytest

from local.errors import UsageError
from local.faults import Faults
from local.faults.command_line import ON_ONE_NODE, act, add_arguments

ALL = (None,)


class Recorder:
    """Stands in for the faults and notes what is asked of it."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        if not hasattr(Faults, name):
            raise AttributeError(name)
        return lambda *arguments, **named: self.calls.append((name, arguments, named))


def calls(line: str) -> list[Any]:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    recorder = Recorder()
    assert act(cast("Faults", recorder), parser.parse_args(line.split())) == 0
    return recorder.calls


@pytest.mark.parametrize("verb", ON_ONE_NODE)
def test_a_fault_of_one_node(verb: str) -> None:
    assert calls(f"{verb} worker2") == [(verb.replace("-", "_"), ("worker2",), {})]


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("heal", ("heal", (), {})),
        ("partition worker2", ("partition", ("worker2", None), {})),
        ("reconnect worker2 master", ("reconnect", ("worker2", "master"), {})),
        ("spot-notice worker2", ("spot_notice", ("worker2",), {"seconds": 120.0})),
        ("spot-notice worker2 --seconds 5", ("spot_notice", ("worker2",), {"seconds": 5.0})),
        ("throttle", ("throttle", ALL, {"share": 1.0, "name": None, "seed": 0})),
        ("throttle ec2 0.3", ("throttle", ("ec2",), {"share": 0.3, "name": None, "seed": 0})),
        ("throttle all 0", ("stop_throttling", ALL, {"name": None})),
        (
            "api-errors s3 --node worker2 --seed 4",
            ("api_errors", ("s3",), {"share": 1.0, "name": "worker2", "seed": 4}),
        ),
        ("api-errors s3 0", ("stop_api_errors", ("s3",), {"name": None})),
        ("api-outage", ("api_outage", ALL, {"refuse": False})),
        ("api-outage --refuse", ("api_outage", ALL, {"refuse": True})),
        ("api-back worker2", ("api_back", ("worker2",), {})),
    ],
)
def test_a_fault_with_more_to_say(line: str, call: object) -> None:
    assert calls(line) == [call]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("throttle foo 0.5", "argument SERVICE: must be one of autoscaling, "),
        ("api-errors 0.5", "dynamodb, ec2, iam, logs, s3, ssm, sts or all, got '0.5'"),
        ("throttle ec2 much", "argument SHARE: must be a number from 0 to 1, got 'much'"),
        ("throttle ec2 nan", "argument SHARE: must be a number from 0 to 1, got 'nan'"),
        ("spot-notice worker2 --seconds inf", "argument --seconds: must be seconds from 0 to 86400, got 'inf'"),
    ],
)
def test_fails_when_a_value_is_none_of_those_allowed(
    line: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        calls(line)
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize("line", ["", "explode worker2", "kill", "throttle 0.5", "throttle ec2 2", "throttle ec2 -1"])
def test_fails_when_a_line_makes_no_sense(line: str) -> None:
    with pytest.raises(SystemExit) as ended:
        calls(line)
    assert ended.value.code == 2


def test_fails_when_one_node_shall_be_refused() -> None:
    with pytest.raises(UsageError, match="--refuse is for all nodes"):
        calls("api-outage worker2 --refuse")
