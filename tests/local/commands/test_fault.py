"""Test the command line of ``local-aws fault``."""

import argparse
from typing import Any, cast

import pytest

from local.commands.fault import add_arguments, run_command
from local.errors import UsageError
from local.faults import Faults
from local.faults.fault_decorator import FAULT_TYPES, Arguments
from local.faults.targets import FaultTarget
from tests.local.fault_recorder import record_faults

ALL_SERVICES = (None,)
NODE_FAULTS = [name for name, fault in FAULT_TYPES.items() if fault.arguments is Arguments.NODE]


class FakeFaults:
    """Stands in for the faults: any name denotes a node."""

    def __init__(self, recorded: list[Any]) -> None:
        self._recorded = recorded

    def undo_all(self) -> None:
        self._recorded.append(("undo_all", (), {}))

    def target(self, name: str) -> FaultTarget:
        return FaultTarget(instance_id=f"i-{name}", alias=name, address="10.0.1.4")


def calls(line: str) -> list[Any]:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    recorded: list[Any] = []
    with pytest.MonkeyPatch.context() as monkeypatch:
        record_faults(monkeypatch, lambda name, args, kwargs: recorded.append((name, args, kwargs)))
        assert run_command(cast("Faults", FakeFaults(recorded)), parser.parse_args(line.split())) == 0
    return recorded


@pytest.mark.parametrize("subcommand", [*NODE_FAULTS])
def test_fault_of_one_node_is_a_command(subcommand: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert calls(f"{subcommand} worker2") == [(subcommand.replace("-", "_"), ("i-worker2",), {})]
    assert capsys.readouterr().out == f"{FAULT_TYPES[subcommand].report}\n".format(
        target="worker2 (i-worker2, 10.0.1.4)"
    )


@pytest.mark.parametrize("fault", ["freeze", "fill-disk", "metadata-outage"])
def test_fault_of_one_node_is_ended_by_its_name(fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert calls(f"end {fault} worker2") == [(f"end_{fault.replace('-', '_')}", ("i-worker2",), {})]
    assert capsys.readouterr().out == f"ended {fault} of worker2 (i-worker2, 10.0.1.4)\n"


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("undo-all", ("undo_all", (), {})),
        ("partition worker2", ("partition", ("i-worker2", None), {})),
        ("end partition worker2 master", ("end_partition", ("i-worker2", "i-master"), {})),
        ("spot-notice worker2", ("spot_notice", ("i-worker2",), {"seconds": 120.0})),
        ("spot-notice worker2 --seconds 5", ("spot_notice", ("i-worker2",), {"seconds": 5.0})),
        ("throttle", ("throttle", ALL_SERVICES, {"fraction": 1.0, "name": None, "seed": 0})),
        ("throttle ec2 0.3", ("throttle", ("ec2",), {"fraction": 0.3, "name": None, "seed": 0})),
        ("end throttle", ("end_throttle", ALL_SERVICES, {"name": None})),
        (
            "api-errors s3 --node worker2 --seed 4",
            ("api_errors", ("s3",), {"fraction": 1.0, "name": "i-worker2", "seed": 4}),
        ),
        ("end api-errors s3 --node worker2", ("end_api_errors", ("s3",), {"name": "i-worker2"})),
        ("api-outage", ("api_outage", ALL_SERVICES, {"refuse": False})),
        ("api-outage --refuse", ("api_outage", ALL_SERVICES, {"refuse": True})),
        ("end api-outage worker2", ("end_api_outage", ("i-worker2",), {})),
        ("storage-outage --slow 3", ("storage_outage", (), {"slow_s": 3.0})),
        ("end storage-outage", ("end_storage_outage", (), {})),
    ],
)
def test_fault_with_arguments_is_a_command(line: str, call: object) -> None:
    assert calls(line) == [call]


@pytest.mark.parametrize(
    ("line", "output"),
    [
        ("kill worker2", "killed worker2 (i-worker2, 10.0.1.4)"),
        ("undo-all", "undid all that can be undone"),
        ("partition worker2", "isolated worker2 (i-worker2, 10.0.1.4) from everything"),
        (
            "end partition worker2 master",
            "ended partition of worker2 (i-worker2, 10.0.1.4) from master (i-master, 10.0.1.4)",
        ),
        ("spot-notice worker2 --seconds 5", "gave notice to worker2 (i-worker2, 10.0.1.4): it ends in 5 s"),
        ("throttle dynamodb 0.5", "throttled 50% of the calls from all nodes to dynamodb"),
        (
            "api-errors s3 0.2 --node master",
            "injected HTTP 500 errors into 20% of the calls from master (i-master, 10.0.1.4) to s3",
        ),
        ("end throttle dynamodb", "ended throttle of the calls from all nodes to dynamodb"),
        ("api-outage", "cut off all nodes from AWS's API"),
        ("end api-outage worker2", "ended api-outage of worker2 (i-worker2, 10.0.1.4)"),
        ("storage-outage", "took the mount targets away"),
        ("storage-outage --slow 3", "slowed mounts down by 3 s"),
        ("end storage-outage", "ended storage-outage of all file systems"),
    ],
)
def test_command_reports_the_fault_in_one_line(line: str, output: str, capsys: pytest.CaptureFixture[str]) -> None:
    calls(line)
    assert capsys.readouterr().out == f"{output}\n"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("throttle foo 0.5", "argument SERVICE: must be one of autoscaling, "),
        ("api-errors 0.5", "ec2, fsx, iam, logs, s3, secretsmanager, ssm, ssmmessages, sts or all, got '0.5'"),
        ("throttle ec2 much", "argument FRACTION: must be a number above 0, at most 1, got 'much'"),
        ("throttle ec2 nan", "argument FRACTION: must be a number above 0, at most 1, got 'nan'"),
        ("spot-notice worker2 --seconds inf", "argument --seconds: must be seconds from 0 to 86400, got 'inf'"),
    ],
)
def test_invalid_value_is_reported_with_the_allowed_ones(
    line: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        calls(line)
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "",
        "explode worker2",
        "kill",
        "throttle 0.5",
        "throttle ec2 2",
        "throttle ec2 0",
        "throttle ec2 -1",
        "end kill worker2",
    ],
)
def test_invalid_fault_command_exits_with_2(line: str) -> None:
    with pytest.raises(SystemExit) as ended:
        calls(line)
    assert ended.value.code == 2


def test_refuse_cannot_be_combined_with_a_node() -> None:
    with pytest.raises(UsageError, match="--refuse cannot be combined with a node"):
        calls("api-outage worker2 --refuse")
