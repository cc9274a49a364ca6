"""Test ``dlcluster up`` with limited capacity: the complete fleet starts in one zone, or nothing anywhere."""

import json
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from bootstrap.aws.group_sizes import PAUSED
from bootstrap.contract import WORKER
from cli.main import main
from cli.up.zone_search import parse_until
from tests.cli.up.up_cluster import DEPLOY, FLEET_SIZES, SETTINGS, ZONES, KilledError, UpCluster, all_nodes_in
from tests.local.control_plane.harness import AccountLimits


def test_all_nodes_start_in_the_first_zone_with_capacity(
    cluster: UpCluster, limits: AccountLimits, capsys: pytest.CaptureFixture[str]
) -> None:
    limits.set(a=1, b=2)  # and no limit in c
    assert cluster.up() == 0
    assert (cluster.zones(), cluster.sizes(), cluster.running()) == (all_nodes_in(ZONES[2]), FLEET_SIZES, 3)
    assert cluster.cdk_json()["availability_zone"] == ZONES[2]
    shown = capsys.readouterr()
    assert f"demo is running in {ZONES[2]}: 3 nodes" in shown.out
    for message in (
        "3 nodes will cost",
        "us-east-1a has no capacity for all 3 nodes: InsufficientInstanceCapacity: We currently do not have sufficient",
        "; 1 node was launched and then terminated, for which AWS bills a minute each",
        "; 2 nodes were launched and then terminated",
        "each zone that fails costs up to 0.004 USD",
    ):
        assert message in shown.err


def test_second_call_launches_no_nodes_again(cluster: UpCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert cluster.up() == 0
    before = cluster.instances()
    capsys.readouterr()
    Path("cdk.json").write_text(json.dumps({"context": {"cluster": SETTINGS}}))  # from another laptop
    assert cluster.up("--json") == 0
    assert (cluster.instances(), cluster.cdk_json()["availability_zone"]) == (before, ZONES[2])
    out, message = capsys.readouterr()
    found = json.loads(out)
    assert (found["zone"], [node["index"] for node in found["nodes"]]) == (ZONES[2], [1, 2, 3])
    assert f"already running in {ZONES[2]}; cdk deploy applies other settings" in message
    assert "will cost" not in message


def test_lost_node_returns_in_the_only_subnet_of_its_group(cluster: UpCluster) -> None:
    assert cluster.up() == 0
    assert all("," not in subnets for subnets in cluster.subnets().values())
    lost = cluster.instances()[WORKER][0]
    cluster.aws.client("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=lost, ShouldDecrementDesiredCapacity=False
    )
    assert lost not in cluster.instances()[WORKER]
    assert cluster.zones() == all_nodes_in(ZONES[2])


IN_THE_SOAK = [
    pytest.param(step, marks=pytest.mark.soak)
    for step in (
        *(f"{DEPLOY}{ZONES[0]}", f"raise max size of worker {ZONES[0]}", f"launch worker {ZONES[0]}"),
        *(f"pause worker {ZONES[0]}", f"{DEPLOY}{ZONES[2]}", f"launch worker {ZONES[2]}", f"resume worker {ZONES[2]}"),
    )
]


@pytest.mark.parametrize(
    "step",
    [f"record attempt {ZONES[0]}", f"launch master {ZONES[1]}", f"forget attempt {ZONES[2]}", *IN_THE_SOAK],
)
def test_call_that_was_killed_is_completed_by_the_next(cluster: UpCluster, step: str) -> None:
    cluster.kill_at(step)
    with pytest.raises(KilledError):
        cluster.up()
    assert cluster.up() == 0
    assert (cluster.zones(), cluster.sizes(), cluster.running()) == (all_nodes_in(ZONES[2]), FLEET_SIZES, 3)
    assert cluster.cdk_json()["availability_zone"] == ZONES[2]


def test_no_node_is_left_when_no_zone_has_room(
    cluster: UpCluster, limits: AccountLimits, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits.set(a=1, b=2, c=0)
    pauses: list[float] = []
    monkeypatch.setattr("cli.up.zone_search.time.sleep", pauses.append)
    begun = datetime.now(timezone.utc)
    until = begun + timedelta(seconds=60)

    class Clock(datetime):
        """Only pauses take time."""

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return begun + timedelta(seconds=sum(pauses))

    monkeypatch.setattr("cli.up.zone_search.datetime", Clock)
    monkeypatch.setattr("cli.up.zone_search.parse_until", lambda *_: until)
    assert cluster.up("--until", "18:00", "-c", "shared_storage=efs") == 1
    assert (cluster.running(), set(cluster.sizes().values())) == (0, {PAUSED})
    assert pauses == [30]
    message = capsys.readouterr().err
    assert f"dlcluster: demo: starting it in {' or '.join(ZONES)}\n" in message
    assert [line.split()[:3] for line in message.splitlines() if line.startswith("us-east-1")] == [
        [ZONES[0], "2", "1"],
        [ZONES[1], "2", "2"],
        [ZONES[2], "2", "0"],
    ]
    assert "no zone had capacity for all 3 nodes until" in message
    assert re.search(
        r"still costs 0\.055 USD an hour.*, and the bucket 0\.023 and the file system 0\.3 per GB and month; .*"
        r"; the nodes that were launched cost 0\.00[89] USD or more\n",
        message,
    )
    assert f"trying until {until.astimezone():%Y-%m-%d %H:%M %Z}" in message
    assert main(["resume"]) == 1
    assert "no zone is chosen yet for demo: dlcluster up finds one" in capsys.readouterr().err


def test_paused_cluster_starts_in_another_zone(cluster: UpCluster, limits: AccountLimits) -> None:
    assert cluster.up() == 0
    assert main(["pause", "--yes"]) == 0
    limits.set(a=0, b=3, c=0)
    assert cluster.up() == 0
    assert (cluster.zones(), cluster.running()) == (all_nodes_in(ZONES[1]), 3)
    assert cluster.cdk_json()["availability_zone"] == ZONES[1]


@pytest.mark.soak
def test_attempt_that_a_pause_ended_is_not_continued(cluster: UpCluster, limits: AccountLimits) -> None:
    """AWS would repeat its earlier answer to a known token: instances that have ended."""
    cluster.kill_at(f"launch master {ZONES[2]}")
    with pytest.raises(KilledError):
        cluster.up()
    assert cluster.zones() == all_nodes_in(ZONES[2])
    assert main(["pause", "--yes"]) == 0
    limits.set(a=0, b=3, c=0)
    assert cluster.up("--timeout", "5") == 0
    assert cluster.zones() == all_nodes_in(ZONES[1])


def test_error_unrelated_to_the_zone_stops_the_search(
    cluster: UpCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.up.fleet.ZONE_CAPACITY_CODES", frozenset())
    assert cluster.up() == 1
    assert cluster.running() == 0
    assert [step for step in cluster.done if step.startswith("deploy")] == [f"deploy {ZONES[0]}"]
    assert "no other zone would help: InsufficientInstanceCapacity" in capsys.readouterr().err


def test_up_refuses_a_running_cluster_of_another_size(cluster: UpCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert cluster.up() == 0
    assert cluster.up("-c", "worker_count=1") == 1
    assert "dlcluster resize or resume changes them there" in capsys.readouterr().err
    assert cluster.zones() == all_nodes_in(ZONES[2])


def test_zones_without_the_type_are_not_tried(
    cluster: UpCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cli.up.requirements.zones_with", lambda *_: ZONES[1:])
    assert cluster.up() == 0
    assert not [step for step in cluster.done if step == f"deploy {ZONES[0]}"]
    assert main(["pause", "--yes"]) == 0
    monkeypatch.setattr("cli.up.requirements.zones_with", lambda *_: [])
    assert cluster.up() == 1
    assert "no zone in the setting zones offers c5.large" in capsys.readouterr().err


def test_zones_are_tried_by_their_spot_score(
    cluster: UpCluster, limits: AccountLimits, capsys: pytest.CaptureFixture[str]
) -> None:
    spot = ("--by-spot-score", "-c", "purchase=spot", "-c", "min_workers=0")
    limits.set(spot=True, a=0, b=1)
    assert cluster.up(*spot) == 0
    assert cluster.done[0] == f"deploy {ZONES[2]}"
    order = f"{ZONES[2]} 3, {ZONES[0]} 1, {ZONES[1]} 1"
    assert f"spot placement scores, from 1 to 10: {order}" in capsys.readouterr().err
    assert main(["pause", "--yes"]) == 0
    limits.set(a=0, b=0, c=0)  # on demand, as this cluster's nodes are
    assert cluster.up(*spot) == 1
    told = capsys.readouterr().err
    assert re.search(rf"{ZONES[1]} +3 +1 +0 +InsufficientInstanceCapacity", told)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-c", "availability_zone=us-east-1a"), "-c availability_zone cannot be combined with up"),
        (("-c", "zones="), "cdk.json has no zones to choose from"),
        (
            ("--by-spot-score",),
            "--by-spot-score needs purchase=spot and a worker, got purchase=on-demand",
        ),
        (("--until", "noon"), "--until must be a time of the day like 18:00, got 'noon'"),
    ],
)
def test_up_without_candidate_zones_or_with_wrong_options_fails(
    cluster: UpCluster, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster.up(*words) == 2
    assert message in capsys.readouterr().err


def test_time_that_has_passed_today_means_tomorrow() -> None:
    now = datetime(2026, 11, 23, 17, 0, tzinfo=timezone.utc)
    assert parse_until("18:00", now) == now + timedelta(hours=1)
    assert parse_until("16:00", now) == now + timedelta(hours=23)
    assert parse_until("25:00", now) is None
