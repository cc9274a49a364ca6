"""Test the explanation of a failed deploy and of a missing node."""

import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from cli.aws.clients import Clients, create_clients
from cli.aws.clusters import Cluster
from cli.aws.diagnosis import diagnose
from cli.aws.stack_history import StackState
from cli.errors import EXIT_NO_CLUSTER
from cli.main import main
from cli.reports.why import why_text
from tests.cli.moto_cluster import KEY, NETWORKS, REGION, Deploy, put_membership

LOG_GROUP = "demo-ClusterLogs"
BROKEN = "i-0123456789abcdef0"
ID = "arn:aws:cloudformation:eu-west-1:1:stack/demo/1"
SIGNAL = f"Received FAILURE signal with UniqueId {BROKEN} disk-full"
Line = tuple[str, str, str, str]
STACK = "AWS::CloudFormation::Stack"
BEGUN: list[Line] = [
    ("demo", STACK, "CREATE_IN_PROGRESS", "User Initiated"),
    (LOG_GROUP, "AWS::Logs::LogGroup", "CREATE_COMPLETE", ""),
    ("workers", "AWS::AutoScaling::AutoScalingGroup", "CREATE_IN_PROGRESS", "Resource creation Initiated"),
]
FAILED: list[Line] = [
    *BEGUN,
    ("workers", "AWS::AutoScaling::AutoScalingGroup", "CREATE_FAILED", SIGNAL),
    ("demo", STACK, "ROLLBACK_COMPLETE", ""),
]


@pytest.fixture
def clients(aws: dict[str, str]) -> Clients:
    return create_clients(REGION)


@pytest.fixture
def stubs(clients: Clients) -> Iterator[tuple[Stubber, Stubber]]:
    with Stubber(clients.cloudformation) as cloudformation, Stubber(clients.autoscaling) as autoscaling:
        yield cloudformation, autoscaling


def stub_events(stub: Stubber, lines: list[Line]) -> None:
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    events = [
        {
            "StackId": ID, "EventId": str(number), "StackName": "demo", "Timestamp": start + timedelta(seconds=number),
            "LogicalResourceId": f"Cluster{name}", "PhysicalResourceId": name, "ResourceType": kind,
            "ResourceStatus": status, "ResourceStatusReason": reason,
        }
        for number, (name, kind, status, reason) in reversed(list(enumerate(lines)))
    ]  # fmt: skip
    stub.add_response("describe_stack_events", {"StackEvents": events}, {"StackName": ID})


def stub_activities(stub: Stubber, *reasons: str, launched: str = "") -> None:
    activities: list[dict[str, Any]] = [
        {
            "ActivityId": str(number), "AutoScalingGroupName": "workers", "Cause": "x",
            "Description": f"Launching a new EC2 instance: {launched}" if launched else "Launching.",
            "StartTime": datetime(2026, 1, 1, 0, 9 - number, tzinfo=timezone.utc),
            "StatusCode": "Failed" if reason else "Successful", **({"StatusMessage": reason} if reason else {}),
        }
        for number, reason in enumerate(reasons)
    ]  # fmt: skip
    desired_nodes = {"AutoScalingGroupName": "workers", "IncludeDeletedGroups": True}
    stub.add_response("describe_scaling_activities", {"Activities": activities}, desired_nodes)


def stub_groups(stub: Stubber, *instance_ids: str) -> None:
    instances = [
        {
            "InstanceId": instance_id, "AvailabilityZone": "a", "LifecycleState": "InService",
            "HealthStatus": "Healthy", "ProtectedFromScaleIn": False,
        }
        for instance_id in instance_ids
    ]  # fmt: skip
    group = {
        "AutoScalingGroupName": "workers", "MinSize": 3, "MaxSize": 3, "DesiredCapacity": 3, "DefaultCooldown": 1,
        "AvailabilityZones": [], "HealthCheckType": "EC2", "CreatedTime": datetime(2026, 1, 1, tzinfo=timezone.utc),
        "Instances": instances,
    }  # fmt: skip
    stub.add_response("describe_auto_scaling_groups", {"AutoScalingGroups": [group]})


def write_log(instance_id: str, *messages: str) -> None:
    logs = boto3.client("logs", region_name=REGION)
    groups = [group["logGroupName"] for group in logs.describe_log_groups()["logGroups"]]
    if LOG_GROUP not in groups:
        logs.create_log_group(logGroupName=LOG_GROUP)
    logs.create_log_stream(logGroupName=LOG_GROUP, logStreamName=instance_id)
    now = int(time.time() * 1000)
    logs.put_log_events(
        logGroupName=LOG_GROUP,
        logStreamName=instance_id,
        logEvents=[{"timestamp": now + number, "message": message} for number, message in enumerate(messages)],
    )


def report(clients: Clients, *, status: str = "ROLLBACK_COMPLETE", cluster: Cluster | None = None) -> str:
    return why_text(diagnose(clients, StackState(name="demo", stack_id=ID, status=status), cluster))


@pytest.mark.parametrize("reason", [SIGNAL, "\x1b[2Jnobody is named"], ids=["named", "the last that spoke"])
def test_control_characters_and_ids_written_by_nodes_are_not_printed(
    clients: Clients, stubs: tuple[Stubber, Stubber], reason: str
) -> None:
    stub_events(stubs[0], [line if line[3] != SIGNAL else (*line[:3], reason) for line in FAILED])
    stub_activities(stubs[1])
    write_log(BROKEN, "\x1b]52;c;ZXZpbA==\x07 one", "\x1b[2J two")
    write_log("i-0$(touch marker)", "three")
    text = report(clients)
    assert " two" in text
    assert "marker" not in text
    assert all(char.isprintable() or char == "\n" for char in text)


def test_why_shows_cause_capacity_and_last_log_lines(clients: Clients, stubs: tuple[Stubber, Stubber]) -> None:
    stub_events(stubs[0], FAILED)
    stub_activities(stubs[1], "no capacity", "no capacity")
    write_log(BROKEN, *(f"line {number}" for number in range(30)), "ERROR disk full")
    write_log("i-0fedcba9876543210", "fine")
    text = report(clients)
    assert text.startswith(
        "stack demo is ROLLBACK_COMPLETE\n"
        "  its last failure, 2026-01-01 00:00:03, the cause first:\n"
        f"  Clusterworkers (AWS::AutoScaling::AutoScalingGroup) CREATE_FAILED: {SIGNAL}\n"
        "\n"
        "EC2 Auto Scaling, 2 of the last 2 activities failed, newest reason first\n"
        "  2026-01-01 00:09:00 workers: Launching, Failed: no capacity (2 times)\n"
        "\n"
        f"last log lines of {BROKEN} (log group {LOG_GROUP})\n"
    )
    words = [line.split(" ", 4)[-1] for line in text.splitlines()[8:]]
    assert words == [*(f"line {number}" for number in range(21, 30)), "ERROR disk full"]


def test_why_shows_all_reasons_after_a_rollback(clients: Clients, stubs: tuple[Stubber, Stubber]) -> None:
    stub_events(stubs[0], FAILED)
    stub_activities(stubs[1], "", "no capacity", "quota", "no capacity", "no capacity")
    assert (
        "EC2 Auto Scaling, 4 of the last 5 activities failed, newest reason first\n"
        "  2026-01-01 00:08:00 workers: Launching, Failed: no capacity (3 times)\n"
        "  2026-01-01 00:07:00 workers: Launching, Failed: quota\n"
        "EC2 Auto Scaling, what the groups did last\n"
        "  2026-01-01 00:09:00 workers: Launching, Successful\n"
        "\n"
    ) in report(clients)


def test_newest_of_many_reasons_are_shown(clients: Clients, stubs: tuple[Stubber, Stubber]) -> None:
    stub_events(stubs[0], FAILED)
    stub_activities(stubs[1], *(f"reason {number}" for number in range(7)))
    text = report(clients)
    assert "Failed: reason 4\n  and 2 older reasons\n" in text
    assert "reason 5" not in text


def test_rollback_without_a_failed_launch_shows_the_last_activities(
    clients: Clients, stubs: tuple[Stubber, Stubber]
) -> None:
    stub_events(stubs[0], FAILED)
    stub_activities(stubs[1], "", "")
    text = report(clients)
    assert "EC2 Auto Scaling, what the groups did last\n  2026-01-01 00:09:00 workers: Launching, Successful\n" in text
    assert "activities failed" not in text


def test_node_without_logs_gets_a_console_command(clients: Clients, stubs: tuple[Stubber, Stubber]) -> None:
    stub_events(stubs[0], FAILED)
    stub_activities(stubs[1])
    text = report(clients)
    assert f"last log lines of {BROKEN}" in text
    assert text.endswith(f"aws ec2 get-console-output --latest --output text --instance-id {BROKEN}\n")


def test_logs_of_the_last_active_nodes_are_shown(clients: Clients, stubs: tuple[Stubber, Stubber]) -> None:
    stub_events(stubs[0], [*BEGUN, ("workers", "AWS::AutoScaling::AutoScalingGroup", "CREATE_FAILED", "timed out")])
    stub_activities(stubs[1])
    write_log(BROKEN, "waiting for the others")
    assert "waiting for the others" in report(clients)


def test_launched_nodes_without_logs_get_a_console_command(clients: Clients, stubs: tuple[Stubber, Stubber]) -> None:
    stub_events(stubs[0], [*BEGUN, ("workers", "AWS::AutoScaling::AutoScalingGroup", "CREATE_FAILED", "timed out")])
    stub_activities(stubs[1], "", launched=BROKEN)
    boto3.client("logs", region_name=REGION).create_log_group(logGroupName=LOG_GROUP)
    assert report(clients).endswith(f"aws ec2 get-console-output --latest --output text --instance-id {BROKEN}\n")


def test_traceback_is_shown_as_one_block(clients: Clients, stubs: tuple[Stubber, Stubber]) -> None:
    stub_events(stubs[0], FAILED)
    stub_activities(stubs[1])
    write_log(BROKEN, "ERROR agent crashed\nTraceback\n  File")
    assert report(clients).endswith("ERROR agent crashed\n  Traceback\n    File\n")


def test_why_says_that_nothing_failed(clients: Clients, stubs: tuple[Stubber, Stubber]) -> None:
    stub_events(stubs[0], [*BEGUN, ("demo", STACK, "CREATE_COMPLETE", "")])
    write_log(BROKEN, "fine")
    assert report(clients, status="CREATE_COMPLETE") == (
        "stack demo is CREATE_COMPLETE\n  no deploy or destroy of it failed\n"
    )


def test_denied_call_is_reported(clients: Clients, stubs: tuple[Stubber, Stubber]) -> None:
    stub_events(stubs[0], FAILED)
    stubs[1].add_client_error("describe_scaling_activities", "AccessDenied", "no")
    text = report(clients)
    assert text.endswith("part of the answer is missing: AWS refused DescribeScalingActivities: AccessDenied: no\n")
    assert SIGNAL in text


def test_missing_node_is_shown_with_its_last_log_lines(
    clients: Clients, stubs: tuple[Stubber, Stubber], deploy: Deploy
) -> None:
    moto_cluster = deploy()
    put_membership(
        moto_cluster.table,
        moto_cluster.instance_ids[:2],
        private=["10.0.0.10", "10.0.1.20"],
        host_keys=[KEY, KEY],
        desired_nodes=3,
    )
    stub_events(stubs[0], [*BEGUN, ("demo", STACK, "CREATE_COMPLETE", "")])
    stub_groups(stubs[1], *moto_cluster.instance_ids)
    stub_activities(stubs[1], "", "an old failure")
    write_log(moto_cluster.instance_ids[2], "waiting for the table")
    write_log(moto_cluster.instance_ids[0], "fine")
    cluster = Cluster(
        name="demo", stack_name="demo", table=moto_cluster.table, login_user="ubuntu", networks_text=NETWORKS
    )
    text = report(clients, status="CREATE_COMPLETE", cluster=cluster)
    assert text.startswith("stack demo is CREATE_COMPLETE, 1 of 3 nodes missing\n")
    assert f"last log lines of {moto_cluster.instance_ids[2]}" in text
    assert "waiting for the table" in text
    assert "an old failure" in text
    assert moto_cluster.instance_ids[0] not in text


# ---- the command ----


def test_why_finds_the_deleted_stack_of_the_app(
    deploy: Deploy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deploy("gone")
    boto3.client("cloudformation", region_name=REGION).delete_stack(StackName="gone-stack")
    (tmp_path / "cdk.json").write_text(json.dumps({"context": {"cluster": {"cluster_name": "gone-stack"}}}))
    monkeypatch.chdir(tmp_path)
    assert main(["why"]) == 0
    assert capsys.readouterr().out.startswith("stack gone-stack is DELETE_COMPLETE\n")


def test_why_finds_stack_by_cluster_name(deploy: Deploy, capsys: pytest.CaptureFixture[str]) -> None:
    deploy("demo")
    assert main(["why", "--cluster", "demo"]) == 0
    assert capsys.readouterr().out.startswith("stack demo-stack is CREATE_COMPLETE, all 3 nodes\n")


def test_command_without_a_name_takes_the_only_cluster(
    deploy: Deploy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    deploy("demo")
    assert main(["why"]) == 0
    assert "demo-stack" in capsys.readouterr().out


def test_why_fails_when_a_source_is_unavailable(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deploy("demo")
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://localhost:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    assert main(["why", "--cluster", "demo"]) == 1
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first == "stack demo-stack is CREATE_COMPLETE"
    assert last.startswith("part of the answer is missing: cannot call AWS: Could not connect to the endpoint")


def test_name_that_no_stack_ever_had_is_reported(aws: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "--cluster", "nobody"]) == EXIT_NO_CLUSTER
    expected = "dlcluster: no stack nobody in eu-west-1, and none was deleted in the last 90 days\n"
    assert capsys.readouterr().err == expected
