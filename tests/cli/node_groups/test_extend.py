"""Test moving the end of a cluster: from the deployed end, once, however often the command is interrupted."""

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from cli.errors import EXIT_FAILED, EXIT_USAGE
from cli.main import main
from tests.cli.moto_cluster import error_line
from tests.cli.node_groups.nodeless_cluster import NodelessCluster, in_state
from tests.cli.node_groups.schedule_calls import expire


def expiry_in_cdk_json() -> datetime:
    text: str = json.loads(Path("cdk.json").read_text())["context"]["cluster"]["expires"]
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


@pytest.mark.parametrize("ahead_h", [None, -1, 5])
def test_time_counts_from_the_deployed_end_or_from_now(
    deployed: NodelessCluster, ahead_h: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    now = datetime.now(timezone.utc)
    if ahead_h is not None:
        deployed.expire_at(now + timedelta(hours=ahead_h))
    for _ in range(2):  # the second call follows one that was killed before its deploy
        assert main(["extend", "8h", "-c", "key_name=me"]) == 0
        late = expiry_in_cdk_json() - now - timedelta(hours=8 + max(ahead_h or 0, 0))
        # AWS's times are full seconds.
        assert timedelta(seconds=-1) <= late < timedelta(minutes=2)
    assert deployed.lines[0] == ["cdk", "deploy", "-c", "key_name=me"]
    assert capsys.readouterr().out.splitlines()[-1] == f"{expiry_in_cdk_json():%Y-%m-%dT%H:%M:%SZ}"


@pytest.mark.parametrize("fires", [True, False])
def test_end_during_the_deploy_is_reported(
    deployed: NodelessCluster, fires: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deployed.expire_at(datetime.now(timezone.utc) + timedelta(minutes=3))

    def cdk(line: list[str], **_options: object) -> object:
        if fires:
            expire(deployed)
        return deployed.cdk(line)

    monkeypatch.setattr("cli.cdk.deploy.subprocess.run", cdk)
    assert main(["extend", "8h", "--json"]) == 0
    out, output = capsys.readouterr()
    assert "perhaps before the deploy is done: its nodes may be terminated first" in output.splitlines()[0]
    message = (
        "the previous expiry passed during the deploy and paused demo (master, worker); "
        "dlcluster resume brings the nodes back"
    )
    assert (f"dlcluster: {message}" in output.splitlines()) == fires
    assert json.loads(out)["paused"] == fires


@pytest.mark.parametrize(("state", "says"), [("paused", True), ("half paused", False), ("as deployed", False)])
def test_deploy_of_a_paused_cluster_starts_nothing_and_says_so(
    deployed: NodelessCluster, state: str, says: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    before = in_state(deployed, state).sizes()
    assert main(["extend", "8h"]) == 0
    line = "dlcluster: demo is paused, and the deploy starts no node"
    assert (line in capsys.readouterr().err.splitlines()) == says
    assert (deployed.lines, deployed.sizes()) == ([["cdk", "deploy"]], before)


def test_scheduled_deletion_is_reported(deployed: NodelessCluster, capsys: pytest.CaptureFixture[str]) -> None:
    ended = datetime.now(timezone.utc).replace(microsecond=0) - timedelta(minutes=5)
    deployed.expire_at(ended, deletes=True)
    assert main(["extend", "8h"]) == 0
    first = ended + timedelta(minutes=15)
    output = f"AWS deletes stack demo from {first:%Y-%m-%dT%H:%M:%SZ} on (expiry_action delete)"
    assert output in capsys.readouterr().err


def test_expired_cluster_is_not_resumed(deployed: NodelessCluster, capsys: pytest.CaptureFixture[str]) -> None:
    deployed.expire_at(datetime(2026, 1, 1, tzinfo=timezone.utc))
    assert main(["resume"]) == EXIT_FAILED
    assert error_line(capsys) == ("demo expired at 2026-01-01T00:00:00Z and would be paused again: dlcluster extend 8h")


@pytest.mark.parametrize("time", ["8", "0h", "8 h", "tomorrow", "-8h", "99999h"])
@pytest.mark.usefixtures("deployed")
def test_text_that_is_no_time_is_a_usage_error(time: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["extend", time]) == EXIT_USAGE
    assert capsys.readouterr().err
