"""Test ``dlcluster status``."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends

from bootstrap.contract import GROUP_TAG, IDLE_STOP_TAG, MOUNT_STATES, MOUNTED, SETUP_TAG
from bootstrap.idle.pause_record import PauseRecord, render_pause
from cli.aws.clients import Clients
from cli.main import main
from cli.reports.status import MOUNT_REASONS
from tests.cli.moto_cluster import KEY, REGION, Deploy, MotoCluster, put_membership

GROUP = {
    "AutoScalingGroupName": "workers", "MinSize": 4, "MaxSize": 4, "DesiredCapacity": 4, "DefaultCooldown": 1,
    "AvailabilityZones": [], "HealthCheckType": "EC2", "CreatedTime": datetime(2026, 1, 1, tzinfo=timezone.utc),
}  # fmt: skip
NODES = 3
"""Nodes of the cluster that the fixture deploys; each is a row of the table."""
MISSING = "1 of 4 nodes missing: 3 have joined, 3 of these are running (dlcluster why shows more)"


def activity(minute: int, reason: str = "") -> dict[str, Any]:
    return {
        "ActivityId": "1", "AutoScalingGroupName": "workers", "Cause": "x",
        "Description": "Launching a new EC2 instance.",
        "StartTime": datetime(2026, 1, 1, 0, minute, tzinfo=timezone.utc),
        "StatusCode": "Failed" if reason else "InProgress", **({"StatusMessage": reason} if reason else {}),
    }  # fmt: skip


@pytest.fixture
def moto_cluster(deploy: Deploy) -> MotoCluster:
    """Return a cluster of three, whose record requests no more."""
    return deploy()


@pytest.mark.parametrize(
    ("lost", "line"),
    [
        ((2,), "worker3 was lost, its instance terminated: EC2 Auto Scaling is replacing it"),
        ((1, 2), "worker2 and worker3 were lost, their instances terminated: EC2 Auto Scaling is replacing them"),
    ],
)
def test_lost_nodes_are_named(
    moto_cluster: MotoCluster, lost: tuple[int, ...], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = [moto_cluster.instance_ids[at] for at in lost]
    boto3.client("ec2", region_name=REGION).terminate_instances(InstanceIds=ids)
    assert main(["status"]) == 0
    *_, numbers, named = capsys.readouterr().out.splitlines()
    assert numbers.startswith(f"{len(lost)} of 3 nodes missing: 3 have joined, {3 - len(lost)} of these ")
    assert named == line


def ask_for_four(moto_cluster: MotoCluster) -> None:
    """Write the record of a master whose groups want four nodes."""
    addresses = ["10.0.0.10", "10.0.1.20", "10.0.1.30"]
    put_membership(
        moto_cluster.table, moto_cluster.instance_ids, private=addresses, host_keys=[KEY] * 3, desired_nodes=4
    )


@contextmanager
def edited_members(moto_cluster: MotoCluster, **attributes: str) -> Iterator[list[dict[str, Any]]]:
    """Yield the members of the cluster's record to edit, and write them back together with these attributes."""
    table = boto3.client("dynamodb", region_name=REGION)
    item = table.get_item(TableName=moto_cluster.table, Key={"id": {"S": "membership"}})["Item"]
    members = json.loads(item["members"]["S"])
    yield members
    edited = {"members": json.dumps(members), **attributes}
    table.put_item(TableName=moto_cluster.table, Item={**item, **{name: {"S": text} for name, text in edited.items()}})


@pytest.fixture
def stub(moto_cluster: MotoCluster, monkeypatch: pytest.MonkeyPatch) -> Stubber:
    """Set the answer of Auto Scaling."""
    client = boto3.client("autoscaling", region_name=REGION)
    monkeypatch.setattr(Clients, "autoscaling", client)
    return Stubber(client)


def below_the_table(capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main(["status"]) == 0
    summary, _, *lines = capsys.readouterr().out.splitlines()
    assert summary.startswith(f"demo: {NODES} of ")
    return lines[NODES:]


def answer(stub: Stubber, *activities: dict[str, Any]) -> None:
    stub.add_response("describe_auto_scaling_groups", {"AutoScalingGroups": [GROUP]})
    stub.add_response("describe_scaling_activities", {"Activities": list(activities)})


def test_surplus_nodes_are_reported_as_terminating(
    moto_cluster: MotoCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    addresses = ["10.0.0.10", "10.0.1.20", "10.0.1.30"]
    put_membership(
        moto_cluster.table, moto_cluster.instance_ids, private=addresses, host_keys=[KEY] * 3, desired_nodes=2
    )
    assert main(["status"]) == 0
    assert capsys.readouterr().out.startswith("demo: 3 nodes running, 2 desired: 1 is terminating, generation ")


def test_worker_that_a_bake_has_left_is_named_with_the_command_that_ends_it(
    moto_cluster: MotoCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of three instances that were chosen for an image, one is in its group, and one has ended."""
    ec2, backend = boto3.client("ec2", region_name=REGION), ec2_backends[DEFAULT_ACCOUNT_ID][REGION]
    left, node, ended = moto_cluster.instance_ids
    ec2.create_tags(Resources=[*moto_cluster.instance_ids], Tags=[{"Key": SETUP_TAG, "Value": "0" * 64}])
    backend.create_tags([node], {GROUP_TAG: "demo-worker"})
    ec2.terminate_instances(InstanceIds=[ended])
    assert main(["status", "--json"]) == 0
    (warning,) = json.loads(capsys.readouterr().out)["warnings"]
    assert warning == (
        f"{left} was detached from its Auto Scaling group to make an image, and still costs money: if no "
        "dlcluster bake is running, run it again to finish, or terminate the instance: "
        f"aws ec2 terminate-instances --instance-ids {left}"
    )
    assert main(["status"]) == 0
    assert f"\n{warning}\n" in capsys.readouterr().out


def test_newest_failure_explains_a_missing_node(stub: Stubber, capsys: pytest.CaptureFixture[str]) -> None:
    with stub:
        answer(stub, activity(4, "no capacity"), activity(3), activity(2, "no capacity"), activity(1, "quota"))
        assert below_the_table(capsys) == [
            MISSING,
            "latest EC2 Auto Scaling failure: "
            "2026-01-01 00:04:00 workers: Launching a new EC2 instance, Failed: no capacity (2 times)",
        ]


def test_activities_after_the_failure_are_shown(stub: Stubber, capsys: pytest.CaptureFixture[str]) -> None:
    with stub:
        answer(stub, activity(4), activity(3, "no capacity"))
        assert below_the_table(capsys)[1:] == [
            "latest EC2 Auto Scaling failure: "
            "2026-01-01 00:03:00 workers: Launching a new EC2 instance, Failed: no capacity",
            "latest EC2 Auto Scaling activity: 2026-01-01 00:04:00 workers: Launching a new EC2 instance, InProgress",
        ]


def test_node_that_is_only_starting_needs_no_failure(stub: Stubber, capsys: pytest.CaptureFixture[str]) -> None:
    with stub:
        answer(stub, activity(4))
        (_, message) = below_the_table(capsys)
    assert message.startswith("latest EC2 Auto Scaling activity: 2026-01-01 00:04:00 workers")


def test_status_shows_the_count_without_permission_for_activities(
    stub: Stubber, capsys: pytest.CaptureFixture[str]
) -> None:
    with stub:
        stub.add_response("describe_auto_scaling_groups", {"AutoScalingGroups": [GROUP]})
        stub.add_client_error("describe_scaling_activities", "AccessDenied", "no")
        assert below_the_table(capsys) == [MISSING, "AWS refused DescribeScalingActivities: AccessDenied: no"]


def test_status_shows_the_record_without_permission_for_groups(
    stub: Stubber, moto_cluster: MotoCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with stub:
        stub.add_client_error("describe_auto_scaling_groups", "AccessDenied", "no")
        assert below_the_table(capsys) == []
        ask_for_four(moto_cluster)
        stub.add_client_error("describe_auto_scaling_groups", "AccessDenied", "no")
        assert below_the_table(capsys) == [MISSING, "AWS refused DescribeAutoScalingGroups: AccessDenied: no"]


def test_without_groups_the_membership_gives_the_desired_nodes(
    moto_cluster: MotoCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    ask_for_four(moto_cluster)
    assert below_the_table(capsys) == [MISSING]


def test_complete_cluster_needs_no_activities_call(
    moto_cluster: MotoCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert below_the_table(capsys) == []


def test_status_shows_mounts_of_shared_storage_and_failures(
    moto_cluster: MotoCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with edited_members(moto_cluster, shared_storage="efs:fs-0123456789abcdef0") as members:
        for member, state in zip(members, ("mounted", "unreachable", "mounted"), strict=True):
            member["mount"] = state
    assert below_the_table(capsys) == [
        "shared storage fs-0123456789abcdef0: on 2 of 3 nodes",
        "worker2: its mount target does not answer; retrying",
    ]
    assert main(["status", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["shared_storage"] == "efs:fs-0123456789abcdef0"
    assert [node["shared_storage"] for node in document["nodes"]] == ["mounted", "unreachable", "mounted"]


def test_each_state_of_a_mount_has_an_explanation() -> None:
    assert {*MOUNT_REASONS} == {*MOUNT_STATES} - {MOUNTED}


def test_node_with_notice_of_its_end_is_shown_as_draining(
    moto_cluster: MotoCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with edited_members(moto_cluster) as members:
        members[1].update(draining=True)
    assert main(["status"]) == 0
    assert re.findall(r"^\d +(\w+) .*running, draining$", capsys.readouterr().out, re.MULTILINE) == ["worker2"]
    assert main(["status", "--json"]) == 0
    assert [node["draining"] for node in json.loads(capsys.readouterr().out)["nodes"]] == [False, True, False]


def test_status_shows_which_setup_each_node_ran(moto_cluster: MotoCluster, capsys: pytest.CaptureFixture[str]) -> None:
    setups = ("done:0123456789ab", "failed:0123456789ab", "done:0123456789ab")
    with edited_members(moto_cluster) as members:
        for member, setup in zip(members, setups, strict=True):
            member.update(setup=setup, draining=setup.startswith("failed"))
    assert main(["status"]) == 0
    output = capsys.readouterr().out
    assert "running, setup failed\n" in output
    assert "setup 0123456789ab: done on 2 of 3 nodes\n" in output
    assert (
        "worker2: setup 0123456789ab failed, so no job runs there (dlcluster why shows the node's last lines)" in output
    )
    assert main(["status", "--json"]) == 0
    nodes = json.loads(capsys.readouterr().out)["nodes"]
    assert [node["setup"]["outcome"] for node in nodes] == ["done", "failed", "done"]
    assert [node["draining"] for node in nodes] == [False, False, False]


def test_status_shows_idle_time_and_pause_time(moto_cluster: MotoCluster, capsys: pytest.CaptureFixture[str]) -> None:
    table, now = boto3.client("dynamodb", region_name=REGION), datetime.now(timezone.utc)
    idle_since = now.replace(microsecond=0) - timedelta(minutes=12, seconds=5)
    pauses_at = idle_since + timedelta(minutes=30)
    record = PauseRecord(idle_stop_s=1800, idle_since=idle_since, silent=(moto_cluster.instance_ids[2],))
    table.put_item(TableName=moto_cluster.table, Item={"id": {"S": "pause"}, **render_pause(record)})
    unhealthy = "worker3 is unhealthy: its agent reports nothing, so it no longer counts as busy"
    assert below_the_table(capsys) == [
        f"idle for 12 min; pauses at {pauses_at:%H:%M} UTC if it stays idle",
        unhealthy,
    ]
    announced = replace(record, pauses_at=pauses_at)
    table.put_item(TableName=moto_cluster.table, Item={"id": {"S": "pause"}, **render_pause(announced)})
    assert below_the_table(capsys) == [f"idle for 12 min; pauses at {pauses_at:%H:%M} UTC", unhealthy]
    assert main(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["idle_pauses_at"] == f"{pauses_at:%Y-%m-%dT%H:%M:%SZ}"
    table.put_item(TableName=moto_cluster.table, Item={"id": {"S": "pause"}, "pause": {"S": "forged"}})
    assert below_the_table(capsys) == []


@pytest.mark.parametrize(("seconds", "setting"), [("1800", "30m"), ("7200", "2h"), ("172800", "2d")])
def test_status_of_a_busy_cluster_shows_when_it_would_pause(
    stub: Stubber, moto_cluster: MotoCluster, seconds: str, setting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tag = {"ResourceId": "workers", "ResourceType": "auto-scaling-group", "Key": IDLE_STOP_TAG, "Value": seconds}
    group = {**GROUP, "DesiredCapacity": NODES, "Tags": [{**tag, "PropagateAtLaunch": False}]}
    for _ in range(3):
        stub.add_response("describe_auto_scaling_groups", {"AutoScalingGroups": [group]})
    with stub:
        assert below_the_table(capsys) == [f"pauses after {setting} without use"]
        busy = render_pause(PauseRecord(idle_stop_s=int(seconds)))
        table = boto3.client("dynamodb", region_name=REGION)
        table.put_item(TableName=moto_cluster.table, Item={"id": {"S": "pause"}, **busy})
        assert below_the_table(capsys) == [f"pauses after {setting} without use; in use now or in the last 5 min"]
        assert main(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["idle_stop"] == setting
