"""Test that ``dlcluster up`` never has two fleets, and never leaves nodes without reporting them."""

import itertools
import os
import signal
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from bootstrap.contract import MASTER, WORKER, group_name
from cli.aws.clients import Clients
from cli.cdk.context import read_props
from cli.cluster_lock import Lock, LockHeldError
from cli.errors import EXIT_INTERRUPTED, ClusterError
from cli.node_groups.groups import pause_groups
from cli.up.attempt import ATTEMPT_TAG
from cli.up.requirements import require_quota
from cli.up.terminate_fleet import EMPTY_POLLS_REQUIRED
from cli.up.zone_deployer import ZoneDeployer
from tests.cli.node_groups.nodeless_cluster import NAME, FakeProcess
from tests.cli.up.up_cluster import SETTINGS, ZONES, KilledError, UpCluster, all_nodes_in
from tests.local.control_plane.harness import AccountLimits

PASSES_UNTIL_GONE = 12
"""Polls of the test's clock after which the instance that arrived late is terminated."""
PASSES_UNTIL_SURE = EMPTY_POLLS_REQUIRED - 1
"""Pauses between the empty polls that `up` then requires."""
ANN = "arn:aws:iam::123456789012:user/ann"


def kill_up_in_third_zone(cluster: UpCluster) -> dict[str, list[str]]:
    """Kill dlcluster once the workers are in the third zone, without a master; return the instances."""
    cluster.kill_at(f"launch worker {ZONES[2]}")
    with pytest.raises(KilledError):
        cluster.up()
    assert cluster.zones() == {"master": [], "worker": [ZONES[2]] * 2}
    return cluster.instances()


def set_tag(cluster: UpCluster, key: str, value: str) -> None:
    place = {"ResourceId": group_name(NAME, WORKER), "ResourceType": "auto-scaling-group"}
    cluster.autoscaling.create_or_update_tags(Tags=[{"Key": key, "Value": value, "PropagateAtLaunch": False, **place}])


def write_lock_of_another_user(cluster: UpCluster, age_s: float = 0.0) -> None:
    """Write down that somebody else runs dlcluster up."""
    seen = int(time.time() - age_s)
    numbers = {"process": 17, "seen": seen, "expires": seen + 1200}
    texts = {"id": "up", "user": ANN, "host": "laptop", "revision": "0"}
    item = {name: {"N": str(number)} for name, number in numbers.items()} | {
        n: {"S": text} for n, text in texts.items()
    }
    cluster.aws.client("dynamodb").put_item(TableName=cluster.stacks.physical_id("Table", name=NAME), Item=item)


def lock_owner_host(cluster: UpCluster) -> str:
    """Return the machine of the record's holder; empty if nobody is."""
    table = cluster.stacks.physical_id("Table", name=NAME)
    found = cluster.aws.client("dynamodb").get_item(TableName=table, Key={"id": {"S": "up"}}).get("Item", {})
    return str(found.get("host", {}).get("S", ""))


def tags(cluster: UpCluster) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in cluster.groups()[WORKER]["Tags"]}


def refuse_deploy(*_: object) -> None:
    raise ClusterError("cdk deploy failed with exit code 1")


def test_nodes_that_come_after_an_unanswered_launch_are_waited_for(
    cluster: UpCluster, clients: Clients, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cli.up.launch.ANSWER_TIMEOUT_S", -1.0)
    ec2, late, pauses = cluster.aws.client("ec2"), list[str](), list[float]()

    image = ec2.describe_images()["Images"][0]["ImageId"]

    def unanswered(**request: Any) -> Any:
        late.append(request["ClientToken"])
        raise ReadTimeoutError(endpoint_url="")

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 10:
            made = ec2.run_instances(ImageId=image, MinCount=1, MaxCount=1, ClientToken=late[0])
            late.append(made["Instances"][0]["InstanceId"])
        if len(pauses) == PASSES_UNTIL_GONE:
            ec2.terminate_instances(InstanceIds=late[1:])

    monkeypatch.setattr(clients.autoscaling, "launch_instances", unanswered)
    monkeypatch.setattr("cli.up.terminate_fleet.time.sleep", sleep)
    assert cluster.up() == 1
    assert (len(late), len(pauses), cluster.running()) == (2, PASSES_UNTIL_GONE + PASSES_UNTIL_SURE, 0)
    message = capsys.readouterr().err
    assert "for LaunchInstances of demo-worker: ReadTimeoutError" in message
    assert "may be running" not in message


def test_groups_moved_away_from_their_nodes_are_emptied(cluster: UpCluster) -> None:
    before, attempt = kill_up_in_third_zone(cluster), tags(cluster)[ATTEMPT_TAG]
    assert cluster.cdk(["cdk", "deploy"]).returncode == 0
    set_tag(cluster, ATTEMPT_TAG, attempt)  # which AWS may keep
    assert cluster.groups()[WORKER]["AvailabilityZones"] == [ZONES[0]]
    assert cluster.up() == 0
    assert (cluster.zones(), cluster.running()) == (all_nodes_in(ZONES[2]), 3)
    assert not {*before[WORKER]} & {*cluster.instances()[WORKER]}


def test_running_call_of_another_user_is_left_alone(cluster: UpCluster, capsys: pytest.CaptureFixture[str]) -> None:
    before = kill_up_in_third_zone(cluster)
    write_lock_of_another_user(cluster)
    assert cluster.up() == 1
    assert cluster.instances() == before
    assert f"{ANN} is running dlcluster up for demo on laptop" in capsys.readouterr().err
    write_lock_of_another_user(cluster, age_s=1300)
    assert cluster.up() == 0
    assert cluster.running() == 3
    assert lock_owner_host(cluster) == ""


def test_call_that_lost_its_lock_terminates_no_instance(
    cluster: UpCluster, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch: Any = clients.autoscaling.launch_instances

    def overtaken(**request: Any) -> Any:
        answer = launch(**request)
        write_lock_of_another_user(cluster)
        return answer

    monkeypatch.setattr(clients.autoscaling, "launch_instances", overtaken)
    assert cluster.up() == 1
    assert cluster.running() == 1
    assert lock_owner_host(cluster) == "laptop"


def test_one_of_two_simultaneous_calls_gets_the_lock(
    cluster: UpCluster, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.cdk(["cdk", "deploy"])
    first, second = (Lock(clients=clients, name=NAME, caller=ANN, pid=pid) for pid in (1, os.getppid()))
    read: Any = clients.dynamodb.get_item

    def read_then_let_second_acquire(**request: Any) -> Any:
        found = read(**request)
        monkeypatch.setattr(clients.dynamodb, "get_item", read)
        second.acquire_or_renew()
        return found

    monkeypatch.setattr(clients.dynamodb, "get_item", read_then_let_second_acquire)
    with pytest.raises(LockHeldError, match=f"{ANN} is running dlcluster up for demo"):
        first.acquire_or_renew()
    second.acquire_or_renew()
    first.release()
    assert lock_owner_host(cluster) == socket.gethostname()
    second.release()
    assert lock_owner_host(cluster) == ""
    first.acquire_or_renew()


def test_groups_with_nodes_are_not_moved(cluster: UpCluster, clients: Clients) -> None:
    kill_up_in_third_zone(cluster)
    deploys = len(cluster.lines)
    lock = Lock(clients=clients, name=NAME, caller=ANN)
    with pytest.raises(ClusterError, match="has nodes now"):
        ZoneDeployer(clients=clients, name=NAME, zones=tuple(ZONES), lock=lock).move(ZONES[0])
    assert len(cluster.lines) == deploys


def test_expired_launch_token_is_not_used_again(cluster: UpCluster) -> None:
    before = kill_up_in_third_zone(cluster)
    set_tag(cluster, ATTEMPT_TAG, tags(cluster)[ATTEMPT_TAG].rpartition(" ")[0] + " 1000")
    assert cluster.up() == 0
    assert cluster.running() == 3
    assert not {*before[WORKER]} & {*cluster.instances()[WORKER]}


def test_running_nodes_are_reported_after_a_failed_deploy(
    cluster: UpCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deploys: list[str] = []

    def cdk(line: list[str], **options: Any) -> Any:
        deploys.append("")
        return FakeProcess(1) if len(deploys) == 4 else cluster.cdk(line, **options)

    monkeypatch.setattr("cli.cdk.deploy.subprocess.run", cdk)
    assert cluster.up() == 1
    assert cluster.running() == 3
    assert (
        "up to 3 nodes may be running at 0.36 USD an hour: run dlcluster up again to continue"
        in capsys.readouterr().err
    )


def test_complete_fleet_without_its_deploy_is_not_ended_for_other_sizes(
    cluster: UpCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ZoneDeployer, "deploy_in", refuse_deploy)
        assert cluster.up() == 1
    before = cluster.instances()
    assert sum(map(len, before.values())) == 3
    assert cluster.up("-c", "worker_count=1") == 1
    assert (cluster.instances(), cluster.running(), lock_owner_host(cluster)) == (before, 3, "")
    message = capsys.readouterr().err
    assert f"({', '.join((*before[MASTER], *before[WORKER]))}): up with the earlier settings keeps the nodes" in message
    assert cluster.up() == 0
    assert cluster.instances() == before


def test_pausing_a_busy_group_is_retried(cluster: UpCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = ["ScalingActivityInProgress", "ResourceContention"]

    def contended(*arguments: Any) -> None:
        if busy:
            raise ClientError({"Error": {"Code": busy.pop(), "Message": ""}}, "UpdateAutoScalingGroup")
        pause_groups(*arguments)

    monkeypatch.setattr("cli.up.terminate_fleet.pause_groups", contended)
    assert cluster.up() == 0
    assert not busy


def test_candidate_zones_with_a_reservation_are_refused() -> None:
    with pytest.raises(ClusterError, match="zones must not be set with purchase=reservation"):
        read_props({"cluster": SETTINGS | {"purchase": "reservation", "capacity_reservation": "cr-0123456789abcdef0"}})


def test_more_vcpus_than_the_quota_are_refused_before_the_deploy(
    cluster: UpCluster, limits: AccountLimits, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cli.up.requirements.require_quota", require_quota)
    limits.set_quotas(standard=5)
    assert cluster.up() == 1
    assert "3 x c5.large are 6 vCPUs" in capsys.readouterr().err
    assert not cluster.lines


def test_stack_that_is_being_deleted_is_not_created_again(
    cluster: UpCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cli.up.zone_deployer.describe_stack", lambda *_: {"StackStatus": "DELETE_IN_PROGRESS"})
    assert cluster.up() == 1
    assert "stack demo is DELETE_IN_PROGRESS: wait until it is gone" in capsys.readouterr().err


def test_up_waits_for_a_deploy_as_long_as_the_setup_may_take(
    cluster: UpCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = itertools.count(step=600)
    monkeypatch.setattr("cli.up.zone_deployer.describe_stack", lambda *_: {"StackStatus": "UPDATE_IN_PROGRESS"})
    time = SimpleNamespace(monotonic=lambda: next(now), sleep=lambda _: None)
    monkeypatch.setattr("cli.up.zone_deployer.time", time)
    assert cluster.up() == 1
    assert "waited 2700 s for stack demo, which is UPDATE_IN_PROGRESS" in capsys.readouterr().err
    Path("setup.sh").write_text("#!/bin/bash\n")
    assert cluster.up("-c", "setup=setup.sh", "-c", "setup_timeout=1h") == 1
    assert "waited 6300 s for stack demo" in capsys.readouterr().err


def test_terminated_call_warns_of_running_nodes(
    cluster: UpCluster, clients: Clients, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def terminated(**_: Any) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(clients.autoscaling, "launch_instances", terminated)
    before = signal.getsignal(signal.SIGTERM)
    assert cluster.up() == EXIT_INTERRUPTED
    assert "up to 3 nodes may be running" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) == before
