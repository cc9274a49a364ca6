"""Test when the control plane's changes start a pass of the data plane."""

from pathlib import Path

import pytest

from local.data_plane.changes import AT_LEAST_EVERY_S, ChangeReader, ChangeWriter, may_change


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "changes"


def test_each_change_triggers_one_pass(file: Path) -> None:
    writer, reader = ChangeWriter(file), ChangeReader(file, Clock())
    assert [reader.is_due() for _ in range(3)] == [True, False, False]
    writer.signal()
    assert [reader.is_due() for _ in range(2)] == [True, False]
    for _ in range(3):
        writer.signal()
    assert [reader.is_due() for _ in range(2)] == [True, False]


def test_passes_are_periodic_without_a_change(file: Path) -> None:
    clock = Clock()
    reader = ChangeReader(file, clock)
    assert reader.is_due()
    clock.now += AT_LEAST_EVERY_S - 0.1
    assert not reader.is_due()
    clock.now += 0.2
    assert reader.is_due()
    assert not reader.is_due()


@pytest.mark.parametrize(("action", "changes"), [("DescribeFileSystems", False), ("CreateFileSystem", True)])
def test_json_request_names_its_action_in_a_header(action: str, changes: bool) -> None:
    assert may_change("fsx", b"{}", target=f"AWSSimbaAPIService_v20180301.{action}") is changes


@pytest.mark.parametrize(
    ("service", "body", "changes"),
    [
        ("ec2", b"Action=DescribeInstances&Version=2016-11-15", False),
        ("ec2", b"Version=2016-11-15&Action=GetConsoleOutput", False),
        ("ec2", b"Action=RunInstances&UserData=Action=Describe", True),
        ("autoscaling", b"Action=SetInstanceHealth&Version=2011-01-01", True),
        ("cloudformation", b"Action=ListStacks", False),
        ("cloudformation", b"Action=SignalResource", True),
        ("dynamodb", b'{"TableName": "cluster"}', False),
        ("a-service-nobody-knows", b"{}", True),
        ("", b"", True),
    ],
)
def test_calls_are_sorted_into_reads_and_changes(service: str, body: bytes, changes: bool) -> None:
    assert may_change(service, body) is changes
