"""Test what status and cost report for a cluster that is paused or ends."""

import functools
import json
import re
from datetime import datetime, timedelta, timezone

import pytest

from bootstrap.contract import MASTER, WORKER
from cli.errors import EXIT_USAGE
from cli.main import main
from tests.cli.node_groups.nodeless_cluster import NodelessCluster, hold
from tests.cli.node_groups.schedule_calls import expire


def test_status_shows_what_outlives_an_end(deployed: NodelessCluster, capsys: pytest.CaptureFixture[str]) -> None:
    standby, protected = hold(deployed)
    expire(deployed)
    assert deployed.instances() == {MASTER: [], WORKER: [standby, protected]}
    assert main(["status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "demo: paused; dlcluster resume brings its nodes back"
    ends = "does not terminate by itself: dlcluster pause terminates it"
    assert f"{standby} is in standby and {ends}" in lines
    assert f"{protected} is protected from scale-in and {ends}" in lines
    # The sizes are already zero, but nodes are still ending.
    assert main(["pause"]) == EXIT_USAGE
    assert main(["pause", "--yes"]) == 0
    assert deployed.instances() == {MASTER: [], WORKER: []}


@pytest.mark.parametrize(
    ("ago_min", "paused", "warns"), [(10, False, 1), (10, True, 0), (1, False, 0), (-10, False, 0)]
)
def test_status_warns_of_a_missed_expiry(
    deployed: NodelessCluster, ago_min: int, paused: bool, warns: int, capsys: pytest.CaptureFixture[str]
) -> None:
    deployed.expire_at(datetime.now(timezone.utc) - timedelta(minutes=ago_min))
    if paused:
        expire(deployed)
    assert main(["status", "--json"]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert len(warnings) == warns
    for warning in warnings:
        assert "and is not paused: most likely the role of its schedules or a policy of your organization" in warning
        assert warning.endswith("dlcluster pause terminates its nodes")


def test_status_and_cost_say_what_was_spent(deployed: NodelessCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 0
    summary, *_, rate, spent, not_counted = capsys.readouterr().out.splitlines()
    assert summary == "demo: 3 of 3 nodes, generation 7"
    assert rate == "costs 0.35 USD an hour by list prices of us-east-1, 2026-07-20"
    assert re.fullmatch(
        r"spent 0\.0\d USD since [0-9-]+ [0-9:]+ UTC: nodes 0\.\d\d, volumes 0\.00, nat 0\.\d\d, addresses 0\.00", spent
    )
    assert main(["pause", "--yes"]) == 0
    capsys.readouterr()
    assert main(["cost", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["usd_per_hour"] == pytest.approx(0.055)
    assert found["usd_per_hour_by_kind"] == {"nodes": 0.0, "volumes": 0.0, "nat": 0.045, "addresses": 0.01}
    # The nodes have ended, and have cost some seconds.
    assert 0 < found["node_hours"] < 1
    assert found["forecast"]["64"] == pytest.approx(64 * 0.055)
    assert main(["status"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "demo: paused; dlcluster resume brings its nodes back"
    assert main(["cost", "--forecast"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["KIND", "USD/HOUR", "SPENT"]
    assert f"list prices of us-east-1, 2026-07-20, US dollars; {not_counted}" in lines
    assert lines[-1] == "a month (730 h) as it is now: 40.15"


@pytest.mark.parametrize(("deletes", "rest_h"), [(False, 59.0), (True, 0.25)])
def test_forecast_runs_to_the_end(
    deployed: NodelessCluster, deletes: bool, rest_h: float, capsys: pytest.CaptureFixture[str]
) -> None:
    deployed.expire_at(datetime.now(timezone.utc) + timedelta(hours=5), deletes=deletes)
    assert main(["cost", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    # Seconds have passed, and three nodes cost 0.35 per hour.
    about = functools.partial(pytest.approx, abs=0.01)
    running, paused = found["usd_per_hour"], found["usd_per_hour_paused"]
    assert found["usd_until_end"] == about(5 * running)
    assert found["forecast"]["64"] == about(5 * running + rest_h * paused)
    assert main(["cost", "--forecast"]) == 0
    until, *_, month = capsys.readouterr().out.splitlines()[-4:]
    assert re.fullmatch(r"until its end at 20[0-9T:-]+Z \(5\.0 h\) as it is now: 1\.7[45]", until)
    assert month.startswith(f"a month (730 h) {'deleted' if deletes else 'paused'} after its end: ")


@pytest.mark.parametrize(("deletes", "outcome"), [(False, "pauses it"), (True, "pauses it, then deletes its stack")])
def test_status_shows_the_clusters_end(
    deployed: NodelessCluster, deletes: bool, outcome: str, capsys: pytest.CaptureFixture[str]
) -> None:
    end = datetime.now(timezone.utc) + timedelta(hours=5, minutes=3, seconds=55)
    deployed.expire_at(end, deletes=deletes)
    assert main(["status"]) == 0
    message = f"AWS {outcome} in 5 h 3 min, at {end:%Y-%m-%dT%H:%M:%SZ}; dlcluster extend 8h postpones it"
    assert message in capsys.readouterr().out.splitlines()
    expire(deployed)
    assert main(["status"]) == 0
    assert message not in capsys.readouterr().out
