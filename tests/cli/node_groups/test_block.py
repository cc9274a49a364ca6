"""Resume a cluster in a Capacity Block: with the sizes that its schedules set, and only within the block's time."""

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from bootstrap.aws.group_sizes import PAUSED
from bootstrap.contract import MEMBERSHIP_ID, NODE_TYPES, TABLE_KEY, group_name
from cli.aws.clients import Clients
from cli.errors import EXIT_FAILED
from cli.main import main
from tests.cli.moto_cluster import error_line
from tests.cli.node_groups.nodeless_cluster import DECLARED, NAME, NodelessCluster, template
from tests.local.control_plane.templates import resource

BLOCK = "cr-0123456789abcdef0"
SOON_H = 1 + 58 / 3600
"""Hours to a start that stays in the same minute for almost a minute."""


def deploy_in_block(deployed: NodelessCluster, *, starts_h: float, pauses_h: float) -> None:
    """Deploy what the product deploys for a block: groups of zero, and the schedules with the sizes."""
    now = datetime.now(timezone.utc)
    times = [f"{now + timedelta(hours=hours):%Y-%m-%dT%H:%M:%SZ}" for hours in (starts_h, pauses_h, pauses_h + 0.7)]
    made: dict[str, Any] = template(dict.fromkeys(NODE_TYPES, PAUSED))
    made["Outputs"]["CapacityBlock"] = {"Value": " ".join((BLOCK, *times))}
    for node_type in NODE_TYPES:
        for name, size in (("Start", DECLARED[node_type]), ("Pause", PAUSED)):
            made["Resources"][f"{name}{node_type.capitalize()}"] = resource(
                "Scheduler::Schedule",
                ScheduleExpression="cron(30 11 1 1 ? *)",
                EndDate="2999-01-01T00:00:00Z",
                FlexibleTimeWindow={"Mode": "OFF"},
                Target={
                    "Arn": "arn:aws:scheduler:::aws-sdk:autoscaling:updateAutoScalingGroup",
                    "RoleArn": "arn:aws:iam::123456789012:role/start",
                    "Input": json.dumps(size.request(group_name(NAME, node_type))),
                },
            )
    deployed.stacks.update(made, name=NAME)
    deployed.deployed = made


def test_resume_in_a_block_takes_the_sizes_from_the_schedules(deployed: NodelessCluster) -> None:
    deploy_in_block(deployed, starts_h=-1, pauses_h=5)
    assert {*deployed.sizes().values()} == {PAUSED}
    assert main(["resume"]) == 0
    assert deployed.sizes() == DECLARED


@pytest.mark.parametrize(
    ("starts_h", "message"), [(SOON_H, "starts in 1 h 0 min"), (-24.0, "is over for this cluster")]
)
def test_resume_outside_of_the_block_is_refused(
    deployed: NodelessCluster, starts_h: float, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    deploy_in_block(deployed, starts_h=starts_h, pauses_h=starts_h + 23)
    assert main(["resume"]) == EXIT_FAILED
    assert f"demo has no capacity now: Capacity Block {BLOCK} {message}" in error_line(capsys)
    assert {*deployed.sizes().values()} == {PAUSED}


def test_status_shows_the_start_of_the_first_nodes(
    deployed: NodelessCluster, clients: Clients, capsys: pytest.CaptureFixture[str]
) -> None:
    deploy_in_block(deployed, starts_h=SOON_H, pauses_h=5)
    table = deployed.stacks.physical_id("Table", name=NAME)
    clients.dynamodb.delete_item(TableName=table, Key={TABLE_KEY: {"S": MEMBERSHIP_ID}})
    assert main(["status"]) == 0
    message = capsys.readouterr().out
    assert message.startswith("demo: paused\n")
    assert f"Capacity Block {BLOCK} starts in 1 h 0 min, at " in message
