"""Test that the control plane reports each possible change of its state, even its own, but no mere reads."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.local.control_plane.harness import Aws, start_server
from tests.waiting import wait_until

TIMEOUT_S = 60.0


def silent(timeout: str) -> str:
    """Return a template with a group that waits this long for a signal that never comes."""
    group = {
        "Type": "AWS::EC2::SecurityGroup",
        "Properties": {"GroupDescription": "waits for a signal"},
        "CreationPolicy": {"ResourceSignal": {"Timeout": timeout}},
    }
    return json.dumps({"Resources": {"Group": group}})


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeLog:
    aws: Aws
    file: Path

    def count(self) -> int:
        return self.file.stat().st_size


@pytest.fixture
def change_log(tmp_path: Path) -> Iterator[ChangeLog]:
    file = tmp_path / "changes"
    process, port = start_server("--changes", str(file))
    yield ChangeLog(aws=Aws(url=f"http://127.0.0.1:{port}", request_log=tmp_path), file=file)
    process.terminate()
    process.communicate(timeout=TIMEOUT_S)


def test_read_calls_are_not_counted_as_changes(change_log: ChangeLog) -> None:
    ec2: Any = change_log.aws.client("ec2")
    before = change_log.count()
    ec2.describe_instances()
    change_log.aws.client("autoscaling").describe_auto_scaling_groups()
    change_log.aws.client("dynamodb").list_tables()
    assert change_log.count() == before
    ec2.create_security_group(GroupName="new", Description="a change")
    assert change_log.count() == before + 1


def test_background_changes_are_reported(change_log: ChangeLog) -> None:
    cloudformation: Any = change_log.aws.client("cloudformation")
    before = change_log.count()
    cloudformation.create_stack(StackName="patient", TemplateBody=silent("PT1H"))
    of_a_request = change_log.count() - before
    # The time may run out before the request's answer is read.
    least = change_log.count() + of_a_request
    cloudformation.create_stack(StackName="stack", TemplateBody=silent("PT1S"))
    wait_until(lambda: change_log.count() > least, "the end of the signal's time", timeout_s=TIMEOUT_S, every_s=0.05)
    assert cloudformation.describe_stacks(StackName="stack")["Stacks"][0]["StackStatus"].startswith("ROLLBACK")
