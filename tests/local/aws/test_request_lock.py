"""Test that the control plane reports each possible change of its state, even its own, and no mere reads."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.local.aws.harness import Aws, start_server

DEADLINE_S = 30.0
SILENT = {
    "Resources": {
        "Group": {
            "Type": "AWS::EC2::SecurityGroup",
            "Properties": {"GroupDescription": "waits for a signal that never comes"},
            "CreationPolicy": {"ResourceSignal": {"Timeout": "PT1S"}},
        }
    }
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    aws: Aws
    file: Path

    def times(self) -> int:
        return self.file.stat().st_size


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    file = tmp_path / "changes"
    process, port = start_server("--changes", str(file))
    yield Told(aws=Aws(url=f"http://127.0.0.1:{port}", request_log=tmp_path), file=file)
    process.terminate()
    process.communicate(timeout=DEADLINE_S)


def test_read_calls_are_no_changes(told: Told) -> None:
    ec2: Any = told.aws.client("ec2")
    before = told.times()
    ec2.describe_instances()
    told.aws.client("autoscaling").describe_auto_scaling_groups()
    told.aws.client("dynamodb").list_tables()
    assert told.times() == before
    ec2.create_security_group(GroupName="new", Description="a change")
    assert told.times() == before + 1


def test_background_changes_are_reported(told: Told) -> None:
    formation: Any = told.aws.client("cloudformation")
    formation.create_stack(StackName="stack", TemplateBody=json.dumps(SILENT))
    before, deadline = told.times(), time.monotonic() + DEADLINE_S
    while told.times() == before:
        assert time.monotonic() < deadline, f"waited {DEADLINE_S:.0f} s for the signal's time to run out"
        time.sleep(0.05)
    assert formation.describe_stacks(StackName="stack")["Stacks"][0]["StackStatus"].startswith("ROLLBACK")
